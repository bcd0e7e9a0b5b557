"""This module has what each of the doctor's two ranks does, in a process of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bluefog_pg.tools.forks import Rank


def average(me: Rank) -> None:
    """Average over a group of two ranks, and check what comes out."""
    import torch
    import torch.distributed as dist

    from bluefog_pg.neighbors import neighbor_allreduce

    me.join("bluefog", timedelta(seconds=30))
    x = torch.full((100_000,), float(me.number), device="cpu")
    mean = neighbor_allreduce(x)
    dist.all_reduce(x)
    if not ((mean == 0.5).all() and (x == 1).all()):
        raise SystemExit(f"rank {me.number} of 2 got wrong sums")
    dist.destroy_process_group()
