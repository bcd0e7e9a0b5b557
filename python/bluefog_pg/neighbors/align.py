"""This module has `align`, a collective that brings ranks to one number of neighbor calls."""

from __future__ import annotations

import torch
import torch.distributed as dist

from bluefog_pg._core import group_check
from bluefog_pg._core.group_state import member_of


def align(group: dist.ProcessGroup | None = None) -> None:
    """Bring the ranks' numbers of neighbor calls to one.

    This collective is for a program whose ranks have made unequal numbers of calls: see
    docs/failures.md. It drops earlier calls that are still under way, so wait for your Works
    before. No rank may wait in a call of neighbors then: such a call takes this one for a wrong
    collective.

    Args:
        group: the process group; None, the default one.

    Raises:
        PeerFailed, CollectiveTimeout, Mismatch: a rank died, did not come, or waits in another
            call. The group's collectives are over then: make a new group.
        NotRunning: there is no default process group.
        TypeError: a group of another backend.

    Example:
        >>> if bf.rank() == 0:  # Only this rank makes this call, which has no neighbors.
        ...     alone = {"self_weight": 1, "src_weights": {}, "dst_weights": []}
        ...     _ = bf.neighbor_allreduce(torch.ones(2), **alone)
        >>> bf.align()
        >>> [round(number, 4) for number in bf.neighbor_allreduce(torch.ones(2)).tolist()]
        [1.0, 1.0]
    """
    member = member_of(group)
    highest = torch.tensor([member.backend.calls_made], dtype=torch.int64, device="cpu")
    with group_check.meeting(f"{member.who} align"):
        dist.all_reduce(highest, dist.ReduceOp.MAX, group=member.group)
        member.backend.align(int(highest))
        dist.barrier(member.group)
