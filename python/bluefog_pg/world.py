"""Who this rank is, and which ranks share its machine.

The functions take a process group; None is the default one. Of that they go on answering after
`shutdown`.

A machine is a host, or, where BLUEFOG_NODES_PER_MACHINE=k is in the environment when one of these
is first called, a block of k consecutive ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed import distributed_c10d

from bluefog_pg._errors import ArgumentError
from bluefog_pg._member import member_of

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg._machines import Machines
    from bluefog_pg._member import Member, Place


class _Past:
    """Of the default group that was left by `shutdown`."""

    place: Place | None = None


def remember() -> None:
    """Go on answering when the default group is gone."""
    _Past.place = member_of(None).place


def rank(group: dist.ProcessGroup | None = None) -> int:
    """This rank's number in the group."""
    return _place(group).rank


def size(group: dist.ProcessGroup | None = None) -> int:
    """The number of ranks in the group."""
    return _place(group).size


def local_rank(group: dist.ProcessGroup | None = None) -> int:
    """This rank's number among those of its machine."""
    return _place(group).machines.local_rank


def local_size(group: dist.ProcessGroup | None = None) -> int:
    """The number of ranks on this machine."""
    return len(_place(group).machines.locals)


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
    return _place(group).machines.are_blocks


def _homogeneous(group: dist.ProcessGroup | None, what: str) -> Machines:
    place = _place(group)
    if not place.machines.are_blocks:
        raise ArgumentError(
            f"{place.who} {what}: the machines have ranks {place.machines.all}; they must be as "
            "many on each, and consecutive"
        )
    return place.machines


def _place(group: dist.ProcessGroup | None) -> Member | Place:
    if group is None and _Past.place is not None and not distributed_c10d.is_initialized():
        return _Past.place
    return member_of(group)
