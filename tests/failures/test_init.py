"""Ranks die, or never come, while the others are inside init_process_group."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import SLOW, WITHIN, Ranks, at_most


def works(rank: int, world: int, store: str) -> float:
    inrank.init(store, rank, world, timeout=8)
    t = torch.ones(100)
    dist.all_reduce(t)
    dist.destroy_process_group()
    return float(t[0])


def enter(rank: int, world: int, late: list[int], alive: list[int]) -> list[Any]:
    """Enter init, some ranks when the parent says so, and then a new group of those that live."""
    if rank in late:
        inrank.mark("waits")
        inrank.gate("come")
    inrank.mark("enters")
    error = inrank.catch(inrank.init, "store", rank, world, 20)
    return [error, works(alive.index(rank), len(alive), "store.2")]


def test_killed_before_the_others_come() -> None:
    with Ranks(3) as ranks:
        ranks.start(enter, [0, 1], [0, 1])
        ranks.at("enters", 2)
        ranks.at("waits", 0, 1)
        time.sleep(0.5)
        ranks.kill(2)
        time.sleep(0.2)
        ranks.open("come")
        told = ranks.values(30, dead=[2])
        for rank in (0, 1):
            error, total = told[rank]
            harness.raised(error, "PeerFailed", ranks=[2])
            assert f"rank {rank}" in error.text and "rank 2" in error.text, error.text
            assert error.took() < WITHIN, f"{error.took():.2f} s"
            assert total == 2


def test_killed_while_some_wait_and_one_is_late() -> None:
    with Ranks(4) as ranks:
        ranks.start(enter, [1], [0, 1, 3])
        ranks.at("enters", 0, 2, 3)
        ranks.at("waits", 1)
        time.sleep(0.5)
        killed = ranks.kill(2)
        time.sleep(1.2 * SLOW)
        ranks.open("come")
        told = ranks.values(30, dead=[2])
        for rank in (0, 1, 3):
            error, total = told[rank]
            harness.raised(error, "PeerFailed", ranks=[2])
            assert error.took(killed) < WITHIN, f"rank {rank}: {error.took(killed):.2f} s"
            assert total == 3


class Dying(dist.Store):
    """A Dying store kills its process at the n-th call, which is a chosen point of init."""

    def __init__(self, inner: dist.Store, at: int) -> None:
        super().__init__()
        self.inner, self.left, self.calls = inner, at, list[str]()

    def _tick(self, name: str) -> None:
        self.calls.append(name)
        self.left -= 1
        if self.left == 0:
            (inrank.directory() / f"died.{time.monotonic()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def set(self, key: str, value: Any) -> None:
        self._tick("set")
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        self._tick("get")
        return self.inner.get(key)

    def add(self, key: str, amount: int) -> int:
        self._tick("add")
        return self.inner.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        self._tick("check")
        return self.inner.check(keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._tick("wait")
        self.inner.wait(keys, timeout or timedelta(seconds=20))

    def delete_key(self, key: str) -> bool:
        self._tick("delete_key")
        return self.inner.delete_key(key)


def join(store: dist.Store, rank: int, world: int, limit: float = 20) -> None:
    dist.init_process_group(
        "bluefog", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=limit)
    )


def count(rank: int, world: int) -> list[str]:
    """Return the calls that this rank's init makes, in order."""
    inner = dist.FileStore(str(inrank.directory() / "counted"), world)
    store = Dying(inner, 0)
    join(store, rank, world)
    calls = list(store.calls)
    dist.barrier()
    dist.destroy_process_group()
    return calls


def die_at(rank: int, world: int, points: list[int]) -> list[Any]:
    """Ranks die one after another, each in a group of its own, at the given call of the store."""
    told = []
    for round_, point in enumerate(points):
        now = world - round_
        inner = dist.FileStore(str(inrank.directory() / f"dying.{round_}"), now)
        store = Dying(inner, point) if rank == now - 1 else inner
        inrank.meet(f"round.{round_}", now)

        def join_and_use(store: dist.Store = store, now: int = now) -> None:
            join(store, rank, now)
            dist.all_reduce(torch.ones(1))

        told.append(inrank.catch(join_and_use))
        if dist.is_initialized():
            dist.destroy_process_group()
    return told


def test_killed_at_chosen_points_inside_init() -> None:
    with Ranks(4) as ranks:
        ranks.start(count)
        calls = ranks.values(20)[3]
        # Before a rank has said that it exists, nobody can know that it does not any more. The
        # latest point comes first, as there are fewer calls with fewer ranks.
        first = calls.index("set") + 2
        points = [first + 3, first + 1, first]
        ranks.start(die_at, points)
        told = ranks.values(40, dead=[1, 2, 3])
        died = sorted(float(p.name[5:]) for p in ranks.dir.glob("died.*"))
        assert len(died) == 3, f"{len(died)} died of {points} in {calls}"
        for round_, error in enumerate(told[0]):
            victim = 3 - round_
            harness.raised(error, "PeerFailed", ranks=[victim])
            late = error.took(died[round_])
            assert late < WITHIN, f"call {points[round_]} of {calls}: {late:.2f} s"


def absent(rank: int, world: int) -> Any:
    if rank == 2:
        inrank.await_file("at.over.0")
        inrank.await_file("at.over.1")
        return None
    error = inrank.catch(inrank.init, "store", rank, world, 1.5)
    inrank.mark("over")
    return error


def test_a_rank_that_never_comes_is_named_at_the_limit() -> None:
    with Ranks(3) as ranks:
        ranks.start(absent)
        told = ranks.values(20)
        began = min(told[rank].began for rank in (0, 1))
        for rank in (0, 1):
            error = harness.raised(told[rank], "RuntimeError", ranks=[2])
            assert "rank 2" in error.text, error.text
            assert 1.4 < error.ended - began < at_most(2.5), f"{error.ended - began:.2f} s"


def fails_alone(rank: int, world: int) -> Any:
    error = None
    if rank == 0:
        error = inrank.catch(inrank.init, "nobody", rank, world, 0.5)
    return [error, works(rank, world, "both")]


def test_init_again_after_an_init_that_failed_here_alone() -> None:
    """torch numbers its groups in each process, and a failed one must not count."""
    told = harness.run_ranks(fails_alone, 2, world=0)
    harness.raised(told[0][0], "RuntimeError", ranks=[1])
    assert [t[1] for t in told] == [2.0, 2.0]


def late(rank: int, world: int) -> float:
    if rank == 2:
        time.sleep(2)
    return works(rank, world, "store")


def test_a_late_rank_is_waited_for() -> None:
    assert harness.run_ranks(late, 3, world=0) == [3.0] * 3


def alone(rank: int, world: int) -> Any:
    inrank.mark("enters")
    return inrank.catch(inrank.init, "store", rank, world + 1, 60)


def test_interrupted_inside_init() -> None:
    with Ranks(1) as ranks:
        ranks.start(alone)
        ranks.at("enters")
        time.sleep(0.3)
        instant = ranks.interrupt(0)
        error = harness.raised(ranks.answer(0, 10), "KeyboardInterrupt")
        assert error.ended - instant < WITHIN


class Stopping(Dying):
    """A Stopping store stops its process as soon as it has published something."""

    def set(self, key: str, value: Any) -> None:
        super().set(key, value)
        inrank.mark("published")
        os.kill(os.getpid(), signal.SIGSTOP)


def beside_a_stopped_one(rank: int, world: int, victim: int, limit: float) -> Any:
    store: dist.Store = dist.FileStore(str(inrank.directory() / "store"), world)
    if rank == victim:
        store = Stopping(store, 0)
    else:
        inrank.await_file(f"at.published.{victim}")
        inrank.mark("enters")
    return inrank.catch(join, store, rank, world, limit)


@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_is_stopped_inside_init_is_named_at_the_limit(victim: int) -> None:
    with Ranks(2) as ranks:
        ranks.start(beside_a_stopped_one, victim, 3.0)
        error = harness.raised(ranks.answer(1 - victim, 15), "CollectiveTimeout", ranks=[victim])
        assert 2.9 < error.took() < at_most(5), f"{error.took():.2f} s"


@pytest.mark.parametrize("victim", [0, 1])
def test_interrupted_while_another_is_stopped(victim: int) -> None:
    with Ranks(2) as ranks:
        ranks.start(beside_a_stopped_one, victim, 60.0)
        ranks.at("enters", 1 - victim)
        time.sleep(1)  # It has tried to reach the other one several times by then.
        instant = ranks.interrupt(1 - victim)
        error = harness.raised(ranks.answer(1 - victim, 10), "KeyboardInterrupt")
        assert error.ended - instant < at_most(2)
