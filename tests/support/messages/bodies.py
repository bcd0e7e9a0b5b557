"""These functions let the ranks of a section tell what was raised, and wait for each other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from tests.support import inrank

Calls = Mapping[str, Callable[[], Any]]
Labeled = tuple[str, inrank.Raised | None]
Told = list[Labeled]


def telling(body: Callable[[int, int], Iterator[Labeled]]) -> Callable[[int, int], Told]:
    """Return a body that returns the list of all that `body` yields."""

    @functools.wraps(body)
    def told(rank: int, world: int) -> Told:
        return list(body(rank, world))

    return told


def caught(calls: Calls, prefix: str = "") -> Iterator[Labeled]:
    for label, call in calls.items():
        yield prefix + label, inrank.catch(call)


@contextmanager
def group_of(*members: int, backend: str | None = None) -> Iterator[Any]:
    """Yield a group of these ranks, or of all.

    All ranks are there when the block begins and ends.
    """
    group = dist.new_group(list(members) or None, backend=backend)
    dist.barrier()
    yield group
    dist.barrier()
    # This rank belongs to the group, and has not left it.
    if group in dist.distributed_c10d._world.pg_map:
        dist.destroy_process_group(group)


# In this group, no rank has the number that it has in the world.
pair = functools.partial(group_of, 1, 3)


@contextmanager
def after_the_others(late: bool) -> Iterator[None]:
    """Run the block on the late ranks when all others have run it."""
    if late:
        dist.barrier()
    yield
    if not late:
        dist.barrier()
