"""Who this rank is, and which ranks share its machine.

The functions take a process group; None is the default one. Of that they go on answering after
`shutdown`.

A machine is a host, or, where BLUEFOG_NODES_PER_MACHINE=k is in the environment when one of these
is first called, a block of k consecutive ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluefog_pg._errors import ArgumentError
from bluefog_pg._member import known_member

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg._machines import Machines


def rank(group: dist.ProcessGroup | None = None) -> int:
    """This rank's number in the group."""
    return known_member(group).rank


def size(group: dist.ProcessGroup | None = None) -> int:
    """The number of ranks in the group."""
    return known_member(group).size


def local_rank(group: dist.ProcessGroup | None = None) -> int:
    """This rank's number among those of its machine."""
    return known_member(group).machines.local_rank


def local_size(group: dist.ProcessGroup | None = None) -> int:
    """The number of ranks on this machine."""
    return len(known_member(group).machines.locals)


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
    return known_member(group).machines.are_blocks


def _homogeneous(group: dist.ProcessGroup | None, what: str) -> Machines:
    member = known_member(group)
    if not member.machines.are_blocks:
        raise ArgumentError(
            f"{member.who} {what}: the machines have ranks {member.machines.all}; they must be as "
            "many on each, and consecutive"
        )
    return member.machines
