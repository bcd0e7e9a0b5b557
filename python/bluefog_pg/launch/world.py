"""This module says which rank this process is, and which ranks share its machine.

The functions take a process group; None is the default one, whose answers stay after `shutdown`.

A machine is a host. Where BLUEFOG_NODES_PER_MACHINE=k is in the environment when one of these
functions is first called, a machine is a block of k consecutive ranks instead.

The functions are local, and any thread may call them.
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
    """This class has the answers for a default group that `shutdown` has left."""

    rank_info: RankInfo | None = None


def remember() -> None:
    """Keep the default group's answers for the time after its end."""
    _Past.rank_info = member_of(None).rank_info


def rank(group: dist.ProcessGroup | None = None) -> int:
    """Return this rank's number in the group.

    Raises:
        NotRunning: there is no default process group, and there was none.
        TypeError: the group has another backend.

    Example:
        >>> bf.rank() == torch.distributed.get_rank()
        True
    """
    return _rank_info(group).rank


def size(group: dist.ProcessGroup | None = None) -> int:
    """Return the number of ranks in the group.

    Raises:
        NotRunning: there is no default process group, and there was none.
        TypeError: the group has another backend.

    Example:
        >>> bf.size()
        4
    """
    return _rank_info(group).size


def local_rank(group: dist.ProcessGroup | None = None) -> int:
    """Return this rank's number among those of its machine.

    Raises:
        NotRunning: there is no default process group, and there was none.
        TypeError: the group has another backend.

    Example:
        >>> bf.local_rank() == bf.rank() % 2  # machines of two ranks each
        True
    """
    return _rank_info(group).machines.local_rank


def local_size(group: dist.ProcessGroup | None = None) -> int:
    """Return the number of ranks on this machine.

    Raises:
        NotRunning: there is no default process group, and there was none.
        TypeError: the group has another backend.

    Example:
        >>> bf.local_size()  # machines of two ranks each
        2
    """
    return len(_rank_info(group).machines.locals)


def machine_rank(group: dist.ProcessGroup | None = None) -> int:
    """Return this machine's number.

    Raises:
        ArgumentError: the machines are not `is_homogeneous`.
        NotRunning: there is no default process group, and there was none.
        TypeError: the group has another backend.

    Example:
        >>> bf.machine_rank() == bf.rank() // 2  # machines of two ranks each
        True
    """
    return _homogeneous(group, "machine_rank").machine_rank


def machine_size(group: dist.ProcessGroup | None = None) -> int:
    """Return the number of machines.

    Raises:
        ArgumentError: the machines are not `is_homogeneous`.
        NotRunning: there is no default process group, and there was none.
        TypeError: the group has another backend.

    Example:
        >>> bf.machine_size()  # machines of two ranks each
        2
    """
    return len(_homogeneous(group, "machine_size").all)


def is_homogeneous(group: dist.ProcessGroup | None = None) -> bool:
    """Return whether all machines have equal numbers of ranks, and each has consecutive ranks.

    Raises:
        NotRunning: there is no default process group, and there was none.
        TypeError: the group has another backend.

    Example:
        >>> bf.is_homogeneous()
        True
    """
    return _rank_info(group).machines.are_blocks


def _homogeneous(group: dist.ProcessGroup | None, what: str) -> Machines:
    info = _rank_info(group)
    if not info.machines.are_blocks:
        raise ArgumentError(
            f"{info.who} {what}: the machines have ranks {info.machines.all}; each "
            "machine must have the same number of ranks, with consecutive numbers"
        )
    return info.machines


def _rank_info(group: dist.ProcessGroup | None) -> GroupState | RankInfo:
    if group is None and _Past.rank_info is not None and not distributed_c10d.is_initialized():
        return _Past.rank_info
    return member_of(group)
