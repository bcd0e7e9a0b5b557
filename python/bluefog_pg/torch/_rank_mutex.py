"""This module has one mutex for each rank, as BlueFog's first versions had it.

It belongs to no window.

The mutexes are kept in the group's store. A rank that dies with one holds it until the others'
timeout.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import threading
import time
from typing import TYPE_CHECKING

from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.loader import load
from bluefog_pg.topology.group_topology import out_neighbor_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch.distributed as dist

    from bluefog_pg._core.group_state import GroupState

_FREE = "free"
_POLL_S = 0.001
_numbers = itertools.count()


@contextlib.contextmanager
def mutexes_of(
    ranks: Iterable[int] | None = None, group: dist.ProcessGroup | None = None
) -> Iterator[None]:
    """Hold the mutexes of those ranks for a block; None stands for the out-neighbors.

    Raises:
        ValueError: ranks that are none.
        TypeError: a rank is no integer.
        RuntimeError: this thread holds one of them already.
        CollectiveTimeout: somebody held one for longer than the group's timeout.
    """
    member = member_of(group)
    named = set(out_neighbor_ranks(group) if ranks is None else map(operator.index, ranks))
    if not set(range(member.size)).issuperset(named):
        raise ValueError(
            f"{member.who} win_mutex: ranks are {sorted(named)}; "
            f"there are ranks 0 to {member.size - 1}"
        )
    with contextlib.ExitStack() as held:
        # All ranks take mutexes in this order, so that no rank waits for one that waits for it.
        for rank in sorted(named):
            held.enter_context(_held(member, rank))
        yield


@contextlib.contextmanager
def _held(member: GroupState, rank: int) -> Iterator[None]:
    store, key = member.group.get_group_store(), f"bluefog/mutex/{rank}"
    thread = f"{member.rank} {threading.get_ident()} "
    mine = f"{thread}{next(_numbers)}"
    deadline = time.monotonic() + member.backend.options._timeout.total_seconds()
    expected = ""  # the value of a key that nobody has set
    while (found := store.compare_set(key, expected, mine).decode()) != mine:
        if found.startswith(thread):
            raise RuntimeError(
                f"{member.who} win_mutex: this thread holds the mutex of rank {rank} already"
            )
        if time.monotonic() > deadline:
            raise load().CollectiveTimeout(
                f"{member.who} win_mutex: rank {found.split()[0]} holds the mutex of rank {rank}"
            )
        if found != _FREE:
            time.sleep(_POLL_S)
        expected = _FREE
    try:
        yield
    finally:
        store.compare_set(key, mine, _FREE)
