"""This module has a script that checks its group, whoever starts its ranks."""

from __future__ import annotations

import re
from pathlib import Path

CHECK = """
import sys, torch, torch.distributed as dist
torch.set_num_threads(1)

def check():
    rank, world = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "bluefog"
    t = torch.full((10_000,), float(rank))
    dist.all_reduce(t)
    assert (t == world * (world - 1) / 2).all(), t
    got = [None] * world
    dist.all_gather_object(got, rank)
    assert got == list(range(world)), got
    # One write call: the ranks share the pipe.
    sys.stdout.write(f"rank {rank} of {world} fine\\n"); sys.stdout.flush()

"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(text)
    return str(path)


def assert_all_fine(out: str, world: int, times: int = 1) -> None:
    found = sorted(re.findall(r"rank (\d) of (\d) fine", out))
    want = sorted((str(r), str(world)) for r in range(world) for _ in range(times))
    assert found == want, out
