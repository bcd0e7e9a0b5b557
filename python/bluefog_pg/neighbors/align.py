"""Bringing ranks to one number of calls."""

from __future__ import annotations

import torch
import torch.distributed as dist

from bluefog_pg._core import group_check
from bluefog_pg._core.group_state import member_of


def align(group: dist.ProcessGroup | None = None) -> None:
    """Collective. Bring the ranks' numbers of neighbor calls to one.

    For a program whose ranks have made unequal numbers of calls: see docs/failures.md. What is
    still under way of earlier calls is dropped, so wait for your Works before. No rank may wait in
    a call of neighbors then: that takes this one for a wrong collective.

    Example:
        for batch in batches:  # More of them on some ranks.
            works.append(bluefog_pg.neighbor_allreduce(x, async_op=True))
        for work in works:
            with contextlib.suppress(bluefog_pg.Mismatch, bluefog_pg.CollectiveTimeout):
                work.wait()
        bluefog_pg.align()

    Args:
        group: the process group; None, the default one.

    Raises:
        PeerFailed, CollectiveTimeout, Mismatch: a rank died, did not come, or waits in another
            call. The group's collectives are over then: make a new group.
        TypeError: a group of another backend.
    """
    member = member_of(group)
    highest = torch.tensor([member.backend.calls_made], dtype=torch.int64, device="cpu")
    with group_check.meeting(f"{member.who} align"):
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=member.group)
        member.backend.align(int(highest))
        dist.barrier(member.group)
