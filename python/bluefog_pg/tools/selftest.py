"""This module has what each of the doctor's two ranks does, in a process of its own."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path


def run(folder: Path, rank: int, settings: dict[str, str]) -> None:
    """Average over a group of two ranks that meet in this folder, and check what comes out.

    What the rank writes goes to a file.
    """
    # The file stays open, because an error is written after this function has raised it.
    file = _output(folder, rank).open("w", buffering=1)
    for stream in (1, 2):
        os.dup2(file.fileno(), stream)
    sys.stdout = sys.stderr = file
    os.environ.update(settings)
    _average(folder, rank)


def said(folder: Path, rank: int) -> str:
    """Return what the rank has written."""
    return _output(folder, rank).read_text(errors="replace")


def _output(folder: Path, rank: int) -> Path:
    return folder / f"output{rank}"


def _average(folder: Path, rank: int) -> None:
    import torch
    import torch.distributed as dist

    from bluefog_pg.neighbors import neighbor_allreduce

    torch.set_num_threads(1)
    limit = timedelta(seconds=30)
    dist.init_process_group(
        "bluefog", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=limit
    )
    x = torch.full((100_000,), float(rank), device="cpu")
    average = neighbor_allreduce(x)
    dist.all_reduce(x)
    if not ((average == 0.5).all() and (x == 1).all()):
        raise SystemExit(f"rank {rank} of 2 got wrong sums")
    dist.destroy_process_group()
