"""Bringing ranks to one number of calls."""

from __future__ import annotations

import torch
import torch.distributed as dist

from bluefog_pg import _agreement
from bluefog_pg._member import member_of


def align(group: dist.ProcessGroup | None = None) -> None:
    """Collective. Bring the ranks' numbers of neighbor calls to one.

    For a program that has caught an exception on some ranks, of which these have made unequal
    numbers of calls: see docs/failures.md. What is still under way of earlier calls is dropped;
    wait for your Works before.

    Example:
        try:
            train()
        except OutOfData:
            pass  # Other ranks may have made more calls.
        bluefog_pg.align()

    Args:
        group: the process group; None, the default one.

    Raises:
        PeerFailed, CollectiveTimeout: a rank died, or did not come.
        TypeError: a group of another backend.
    """
    member = member_of(group)
    highest = torch.tensor([member.backend.calls_made], dtype=torch.int64, device="cpu")
    with _agreement.meeting(f"{member.who} align"):
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=member.group)
        member.backend.align(int(highest))
        dist.barrier(member.group)
