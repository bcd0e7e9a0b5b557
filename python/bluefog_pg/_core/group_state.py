"""This rank's part in a process group: what the operations need to know of it, at hand."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch.distributed import distributed_c10d

from bluefog_pg._core.errors import NotRunning
from bluefog_pg._core.groups import backend_of, resolve, who
from bluefog_pg._core.machines import Machines

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg._C import ProcessGroupBluefog, TensorWindow
    from bluefog_pg._core.edge_cache import EdgeCache
    from bluefog_pg._core.neighborhood import Topology


@dataclass(frozen=True)
class RankInfo:
    """Who a rank is."""

    who: str
    rank: int
    size: int
    machines: Machines


class GroupState:
    """What this rank keeps for a group that it is a member of; variables are called `member`.

    It lives as long as the group, and does not hold it.
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
        self.machine_failure: str | None = None  # why there will be none
        self.machine_lock = threading.Lock()
        # Of calls that no topology has a say in: neighbor_allgather's by two arguments,
        # pair_gossip's by three.
        self.edge_cache: EdgeCache = {}
        self.windows: dict[str, Any] = {}  # each Window, by its name
        self.unfreed: list[TensorWindow] = []  # others may still write there

    @property
    def group(self) -> dist.ProcessGroup:
        group = self._group()
        if group is None:
            raise NotRunning(f"{self.who}: the process group has been destroyed; make a new one")
        return group

    @property
    def has_ended(self) -> bool:
        """Whether the program has destroyed the group."""
        group = self._group()
        return group is None or group not in _world.pg_map

    @property
    def rank_info(self) -> RankInfo:
        return RankInfo(self.who, self.rank, self.size, self.machines)

    @cached_property
    def machines(self) -> Machines:
        return Machines.of(self.backend.hosts, self.rank, self.who)


_world = distributed_c10d._world
_members: dict[int, GroupState] = {}  # by the id of the group, which takes its own out when it goes


def member_of(group: dist.ProcessGroup | None) -> GroupState:
    """Of the group, or of the default one.

    Raises:
        TypeError: this rank has no part in the group, or its backend is another one.
        NotRunning: there is no default group.
    """
    wanted: Any = _world.default_pg if group is None else group
    return _members.get(id(wanted)) or _new_member(group)


def _new_member(group: dist.ProcessGroup | None) -> GroupState:
    resolved = resolve(group)
    member = _members.setdefault(id(resolved), GroupState(resolved))
    weakref.finalize(resolved, _members.pop, id(resolved), None).atexit = False
    return member
