"""The calls refuse bad arguments, those of bad_*.py, in golden words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from tests.support import harness
from tests.support.messages import golden
from tests.support.messages.bad_neighbors import (
    gatherings,
    machines,
    neighbors,
    of_python,
    pairs,
    topologies,
)
from tests.support.messages.bad_places import lists, places
from tests.support.messages.bad_tensors import reductions, tensors
from tests.support.messages.bodies import Calls, Labeled, caught, group_of, pair, telling
from tests.support.messages.calls import cpu, options, world_group
from tests.support.messages.tensors import f, fs


def in_the_world(gloo: Any) -> dict[str, Calls]:
    b = cpu(world_group())
    return {
        "tensors": tensors(b),
        "reductions": reductions(b),
        "places": places(b),
        "lists": lists(b),
        "neighbors": neighbors(b),
        "gatherings": gatherings(),
        "pairs": pairs(),
        "machines": machines(),
        "topologies": topologies(),
        "python": of_python(gloo),
    }


def in_a_pair(group: Any) -> Calls:
    import bluefog_pg

    b = cpu(group)
    return {
        "root 3": lambda: b.broadcast(fs(1), options("Broadcast", rootRank=3)),
        "gather": lambda: b.gather([fs(2)], fs(1), options("Gather", rootRank=0)),
        "send to 3": lambda: b.send(fs(1), 3, 0),
        "neighbors": lambda: bluefog_pg.neighbor_allreduce(
            f(3), self_weight=0.5, src_weights={3: 0.5}, group=group
        ),
        "topology": lambda: bluefog_pg.set_topology([], group=group),
    }


@telling
def bad_arguments(rank: int, world: int) -> Iterator[Labeled]:
    """Rank 1 makes all bad calls, and rank 3 those in a pair; then all ranks must still agree.

    Calls of neighbors that are refused count.
    """
    import bluefog_pg

    bluefog_pg.set_topology()
    with group_of(1, 3, backend="gloo") as gloo, pair() as group:
        if rank == 1:
            for kind, calls in in_the_world(gloo).items():
                yield from caught(calls, f"{kind}, ")
        if rank == 3:
            yield from caught(in_a_pair(group), "pair, ")
    bluefog_pg.align()
    x = f(3)
    dist.all_reduce(x)
    dist.all_reduce(bluefog_pg.neighbor_allreduce(x))
    assert x[0] == world


def test_messages(pool: harness.Pool) -> None:
    told = pool.run(bad_arguments)
    golden.agree("arguments", told)
    slow = [label for errors in told for label, e in errors if e.took() > harness.WITHIN]
    assert not slow
