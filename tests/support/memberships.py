"""These helpers change the members of a group by calls that torch has from 2.14 on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.support import inrank
from tests.support.harness import SLOW

NEEDED = pytest.mark.skipif(
    not hasattr(dist.Backend, "_ensure_backend_registered"),
    reason="torch 2.13 has no torch.distributed._reconfigure; 2.14 and later have",
)
LIMIT = timedelta(seconds=20 * SLOW)


def begin(rank: int, world: int, timeout: float = 20.0 * SLOW) -> None:
    dist.init_process_group(
        "bluefog",
        store=dist.FileStore(str(inrank.directory() / "store"), world),
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout),
        enable_reconfigure=True,
    )


def leave_file(name: str, text: str) -> None:
    path = inrank.directory() / name
    new = path.with_name(f"{name}.{os.getpid()}")
    new.write_text(text)
    new.rename(path)


def read_file(name: str) -> str:
    inrank.await_file(name, 60)
    return (inrank.directory() / name).read_text()


def handles(point: str, rank: int, world: int) -> list[str]:
    """Return the handles of all processes, by their number; each leaves its own in a file."""
    leave_file(f"{point}.{rank}", dist._get_reconfigure_handle())
    return [read_file(f"{point}.{each}") for each in range(world)]


def change(uuid: int, members: Sequence[str] | set[str], limit: timedelta = LIMIT) -> None:
    given = members if isinstance(members, set) else list(members)
    dist._reconfigure(uuid, given, timeout=limit).wait()


def require_sum() -> None:
    size = dist.get_world_size()
    x = torch.full((5,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    assert (x == size * (size + 1) / 2).all(), x
