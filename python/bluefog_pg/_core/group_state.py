"""This module keeps what the operations need to know of this rank's part in a process group."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch.distributed import distributed_c10d

from bluefog_pg._core.errors import NotRunning
from bluefog_pg._core.groups import backend_of, reconfigurable_of, resolve, who
from bluefog_pg._core.machines import Machines

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg._C import ProcessGroupBluefog, TensorWindow
    from bluefog_pg._core.edge_cache import EdgeCache
    from bluefog_pg._core.neighborhood import Topology


@dataclass(frozen=True)
class RankInfo:
    """A RankInfo says which rank of a group this is, and on which machine."""

    who: str
    rank: int
    size: int
    machines: Machines


class GroupState:
    """A GroupState has what this rank keeps for a group that it is a member of.

    It lives as long as the group, which it refers to weakly. It owns the rank's topologies and
    windows in the group. Variables of this class are called `member`.

    Thread safety: any thread may use it.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = weakref.ref(group)
        self.backend = backend_of(group)
        self.rank: int = group.rank()
        self.size: int = group.size()
        self.who: str = who(group)
        self.topology: Topology | None = None
        self.machine_topology: Topology | None = None
        self.machine_backend: ProcessGroupBluefog | None = None
        self.machine_failure: str | None = None  # why machine_backend could not be made
        self.machine_lock = threading.Lock()
        # This cache is for calls whose edges depend on no topology. Keys of neighbor_allgather are
        # made of two arguments, those of pair_gossip of three, so that they differ.
        self.edge_cache: EdgeCache = {}
        self.windows: dict[str, Any] = {}  # each Window by its name
        self.unfreed: list[TensorWindow] = []  # windows that other ranks may still write to

    @property
    def group(self) -> dist.ProcessGroup:
        group = self._group()
        if group is None:
            raise NotRunning(f"{self.who}: the process group has been destroyed; make a new one")
        return group

    @property
    def has_ended(self) -> bool:
        """Return whether the program has destroyed the group."""
        group = self._group()
        return group is None or group not in _world.pg_map

    @property
    def rank_info(self) -> RankInfo:
        return RankInfo(self.who, self.rank, self.size, self.machines)

    @cached_property
    def machines(self) -> Machines:
        return Machines.of(self.backend.hosts, self.rank, self.who)


_world = distributed_c10d._world
_members: dict[int, GroupState] = {}  # by the id of the group; a finalizer of the group removes it


def member_of(group: dist.ProcessGroup | None) -> GroupState:
    """Return this rank's state of the group, or of the default group for None.

    Raises:
        TypeError: this rank is no member of the group, or the group has another backend.
        NotRunning: there is no default group.
    """
    wanted: Any = _world.default_pg if group is None else group
    return _members.get(id(wanted)) or _new_member(group)


def _new_member(group: dist.ProcessGroup | None) -> GroupState:
    resolved = resolve(group)
    member = _members.setdefault(id(resolved), GroupState(resolved))
    forget = weakref.finalize(resolved, _members.pop, id(resolved), None)
    forget.atexit = False
    if (changing := reconfigurable_of(resolved)) is not None:
        changing.on_change(forget)  # The state of the present members ends with them.
        if changing.group is not member.backend:  # Another thread has changed them meanwhile.
            forget()
            return _new_member(group)
    return member
