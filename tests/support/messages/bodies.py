"""How the ranks of a section tell what was raised, and how they wait for each other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from tests.support import inrank

Calls = Mapping[str, Callable[[], Any]]
Labelled = tuple[str, inrank.Raised | None]
Told = list[Labelled]


def telling(body: Callable[[int, int], Iterator[Labelled]]) -> Callable[[int, int], Told]:
    """The body whose value is all that this one yields."""

    @functools.wraps(body)
    def told(rank: int, world: int) -> Told:
        return list(body(rank, world))

    return told


def caught(calls: Calls, prefix: str = "") -> Iterator[Labelled]:
    for label, call in calls.items():
        yield prefix + label, inrank.catch(call)


@contextmanager
def group_of(*members: int, backend: str | None = None) -> Iterator[Any]:
    """Of these ranks, or of all; everybody is there when it begins and when it ends."""
    group = dist.new_group(list(members) or None, backend=backend)
    dist.barrier()
    yield group
    dist.barrier()
    if group in dist.distributed_c10d._world.pg_map:  # neither a stranger to it nor gone already
        dist.destroy_process_group(group)


# No rank has the same number in this group as in the world.
pair = functools.partial(group_of, 1, 3)


@contextmanager
def after_the_others(late: bool) -> Iterator[None]:
    """The turn of the late ranks comes when all others have had theirs."""
    if late:
        dist.barrier()
    yield
    if not late:
        dist.barrier()
