"""Who this rank is, and which ranks share its machine.

The functions take a process group; None is the default one. Of that they go on answering after
`shutdown`.

A machine is a host, or, where BLUEFOG_NODES_PER_MACHINE=k is in the environment when one of these
is first called, a block of k consecutive ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed import distributed_c10d

from bluefog_pg._core.errors import ArgumentError
from bluefog_pg._core.group_state import member_of

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg._core.group_state import GroupState, RankInfo
    from bluefog_pg._core.machines import Machines


class _Past:
    """Of the default group that was left by `shutdown`."""

    rank_info: RankInfo | None = None


def remember() -> None:
    """Go on answering when the default group is gone."""
    _Past.rank_info = member_of(None).rank_info


def rank(group: dist.ProcessGroup | None = None) -> int:
    """This rank's number in the group."""
    return _rank_info(group).rank


def size(group: dist.ProcessGroup | None = None) -> int:
    """The number of ranks in the group."""
    return _rank_info(group).size


def local_rank(group: dist.ProcessGroup | None = None) -> int:
    """This rank's number among those of its machine."""
    return _rank_info(group).machines.local_rank


def local_size(group: dist.ProcessGroup | None = None) -> int:
    """The number of ranks on this machine."""
    return len(_rank_info(group).machines.locals)


def machine_rank(group: dist.ProcessGroup | None = None) -> int:
    """This machine's number.

    Raises:
        ArgumentError: the machines are not `is_homogeneous`.
    """
    return _homogeneous(group, "machine_rank").machine_rank


def machine_size(group: dist.ProcessGroup | None = None) -> int:
    """The number of machines.

    Raises:
        ArgumentError: the machines are not `is_homogeneous`.
    """
    return len(_homogeneous(group, "machine_size").all)


def is_homogeneous(group: dist.ProcessGroup | None = None) -> bool:
    """Whether all machines have as many ranks, and each of them consecutive ones."""
    return _rank_info(group).machines.are_blocks


def _homogeneous(group: dist.ProcessGroup | None, what: str) -> Machines:
    info = _rank_info(group)
    if not info.machines.are_blocks:
        raise ArgumentError(
            f"{info.who} {what}: the machines have ranks {info.machines.all}; they must be as "
            "many on each, and consecutive"
        )
    return info.machines


def _rank_info(group: dist.ProcessGroup | None) -> GroupState | RankInfo:
    if group is None and _Past.rank_info is not None and not distributed_c10d.is_initialized():
        return _Past.rank_info
    return member_of(group)
