"""A checker finds that random window calls of four ranks keep what docs/semantics.md promises."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, hosts
from tests.support.harness import Ranks
from tests.support.histories import WIDTH, Event, Kind, Recorder, check

pytestmark = pytest.mark.device


def record(rank: int, world: int, seed: int, calls: int) -> list[tuple[int, ...]]:
    import bluefog_pg as bf

    bf.set_topology(bf.topology_util.FullyConnectedGraph(world))
    window = bf.Window(torch.zeros(WIDTH, dtype=torch.float64), "w", zero_init=True)
    dist.barrier()
    history = Recorder(window, rank, world, random.Random(f"{seed} {rank}")).run(calls)
    dist.barrier()
    window.free()
    return history


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
def test_histories_of_one_host(pool: harness.Pool, seed: int) -> None:
    check(pool.run(record, seed, 30_000, world=4, timeout=120))


@pytest.mark.slow
def test_histories_of_two_hosts() -> None:
    with hosts.network(2) as pair, Ranks(4, hosts=pair) as ranks:
        ranks.start(record, 7, 5_000, world=4, store="s")
        told = ranks.values(120)
    check([told[rank] for rank in range(4)])


def event(kind: Kind, value: int, begin: int, end: int) -> Any:
    return tuple(Event(kind, 1, value, begin, end))


WRITES = [(Kind.PUT, 0, 5, 10, 20), (Kind.ADD, 0, 3, 30, 40), (Kind.SET, 0, 9, 50, 60)]
ALLOWED = [
    [(Kind.SEE, 0, 0, 5), (Kind.SEE, 5, 25, 28), (Kind.TAKE, 8, 45, 46), (Kind.SEE, 0, 47, 48)],
    [(Kind.SEE, 0, 12, 15), (Kind.SEE, 5, 16, 35), (Kind.TAKE, 5, 36, 37), (Kind.SEE, 3, 41, 42)],
    [
        (Kind.FETCH, 0, 21, 22),
        (Kind.SEE, 3, 41, 42),
        (Kind.FETCH, 0, 55, 56),
        (Kind.SEE, 9, 57, 58),
    ],
]
FORBIDDEN = {
    "seen before it was put": [(Kind.SEE, 5, 0, 5)],
    "not seen though it was there": [(Kind.SEE, 0, 25, 28)],
    "seen twice": [(Kind.TAKE, 5, 21, 25), (Kind.SEE, 8, 41, 42)],
    "lost": [(Kind.TAKE, 5, 21, 25), (Kind.SEE, 0, 41, 42)],
    "torn": [(Kind.SEE, -1, 12, 18)],
    "back in time": [(Kind.SEE, 5, 12, 15), (Kind.SEE, 0, 16, 19)],
    "fetched too late": [(Kind.FETCH, 0, 61, 62), (Kind.SEE, 0, 63, 64)],
}


@pytest.mark.parametrize("seen", ALLOWED)
def test_the_checker_lets_pass_what_is_allowed(seen: list[Any]) -> None:
    check([[event(*each) for each in seen], WRITES])


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_checker_sees_what_is_wrong(what: str) -> None:
    with pytest.raises(AssertionError, match="where the slot was one of"):
        check([[event(*each) for each in FORBIDDEN[what]], WRITES])
