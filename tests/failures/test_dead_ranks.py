"""Ranks that die, stop or leave are named in time by those who need them, and life goes on."""

from __future__ import annotations

import ctypes
import os
import random
import re
import sys
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.support import harness, inrank
from tests.support.harness import SLOW, WITHIN, Ranks, at_most
from tests.support.programs import run_script
from tests.support.stranded_ops import OPERATIONS


def operate(name: str, rank: int, world: int) -> None:
    OPERATIONS[name](rank, world, None)


def dying(rank: int, world: int, operations: list[str]) -> list[Any]:
    """Ranks die one after another, amid operations, and the rest meet in a new group."""
    told = []
    for round_, name in enumerate(operations):
        now = world - round_
        inrank.init(f"round.{round_}", rank, now)
        t = torch.ones(1000)
        dist.all_reduce(t)
        assert (t == now).all()
        inrank.mark(f"up.{round_}")

        def forever(name: str = name, now: int = now) -> None:
            while True:
                operate(name, rank, now)

        error = inrank.catch(forever)
        again = inrank.catch(dist.all_reduce, torch.ones(1))
        began = time.monotonic()
        dist.destroy_process_group()
        told.append([error, again, time.monotonic() - began])
    return told


@pytest.mark.alone
@pytest.mark.parametrize("first", range(0, len(OPERATIONS), 3))
def test_killed_ranks_are_named_and_survivors_go_on(first: int) -> None:
    operations, world = list(OPERATIONS)[first : first + 3], 4
    rng = random.Random(first)
    with Ranks(world) as ranks:
        ranks.start(dying, operations)
        killed = []
        for round_ in range(len(operations)):
            victim = world - 1 - round_
            ranks.at(f"up.{round_}", *range(victim + 1))
            time.sleep(rng.uniform(0.1, 0.4))
            killed.append(ranks.kill(victim))
        told = ranks.values(30, dead=range(world - len(operations), world))
        assert sorted(told) == list(range(world - len(operations)))
        alive = world - len(operations)
        # The dead told nothing. Each round of those that lived is judged.
        for rank in range(alive):
            for round_, (error, again, took) in enumerate(told[rank]):
                where = f"{operations[round_]}, rank {rank}"
                victim = world - 1 - round_
                harness.raised(error, "PeerFailed", ranks=[victim])
                assert re.match(rf"\[bluefog\] rank {rank}/{victim + 1} ", error.text), error.text
                assert re.search(rf"\b{victim}\b", error.text), error.text
                late = error.ended - killed[round_]
                assert late < WITHIN, f"{where}: raised after {late:.2f} s"
                harness.raised(again, "RuntimeError")
                assert again.took() < WITHIN, f"{where}: the next call took {again.took():.2f} s"
                assert took < at_most(2), f"{where}: destroy took {took:.2f} s"
        assert ranks.leave()[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("what", [(), ("--windows",)], ids=["operations", "windows"])
def test_kills_at_random_instants(what: tuple[str, ...]) -> None:
    soak = [sys.executable, "-m", "tests.failures.soak", *what]
    ran = run_script([*soak, "--rounds", "8", "--limit", str(WITHIN)], timeout=120)
    assert ran.code == 0, ran.out


def looping(rank: int, world: int) -> inrank.Raised | None:
    inrank.mark("up")

    def forever() -> None:
        while True:
            operate("all_reduce", rank, world)
            operate("large all_reduce", rank, world)

    return inrank.catch(forever)


def training(rank: int, world: int, wrap: str) -> inrank.Raised | None:
    from torch.distributed.fsdp import fully_shard

    net = torch.nn.Linear(64, 64)
    model = DistributedDataParallel(net) if wrap == "DDP" else fully_shard(net)
    model(torch.ones(8, 64)).sum().backward()
    loss = model(torch.ones(8, 64)).sum()
    inrank.mark("up")
    inrank.gate("gone")
    return inrank.catch(loss.backward)


@pytest.mark.alone
@pytest.mark.parametrize("wrap", ["DDP", "FSDP2"])
def test_backward_keeps_the_exception_and_its_ranks(wrap: str) -> None:
    """Errors in backward pass through torch's own translation, which knows types and texts only."""
    with Ranks(3) as ranks:
        ranks.start(training, wrap, world=3, store="s")
        ranks.at("up")
        killed = ranks.kill(1)
        ranks.open("gone")
        for error in ranks.values(20, dead=[1]).values():
            assert harness.raised(error, "PeerFailed", ranks=[1]).took(killed) < WITHIN
            assert error.kind == "PeerFailed"


@pytest.mark.alone
def test_two_die_at_once() -> None:
    with Ranks(4) as ranks:
        ranks.start(looping, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        killed = [ranks.kill(1), ranks.kill(3)]
        told = ranks.values(20, dead=[1, 3])
        for rank in (0, 2):
            error = harness.raised(told[rank], "PeerFailed")
            assert error.ranks and set(error.ranks) <= {1, 3}, error.text
            assert error.ended - killed[0] < WITHIN
        assert [ranks.leave()[r] for r in (0, 2)] == [0, 0]


def test_all_die_at_once() -> None:
    """All die at once. The leak check around the test is the judge."""
    with Ranks(4) as ranks:
        ranks.start(looping, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        for rank in range(4):
            ranks.kill(rank)
        assert ranks.values(10, dead=range(4)) == {}


def looping_with_a_limit(rank: int, world: int) -> inrank.Raised | None:
    inrank.init("limit", rank, world, timeout=2)
    return looping(rank, world)


@pytest.mark.alone
def test_one_is_stopped_in_the_middle_of_traffic() -> None:
    with Ranks(4) as ranks:
        ranks.start(looping_with_a_limit)
        ranks.at("up")
        time.sleep(0.3)
        stop = ranks.stop(1)
        for rank in (0, 2, 3):
            error = harness.raised(ranks.answer(rank, 8), "CollectiveTimeout")
            assert error.ranks and 1 in error.ranks, error.text
            assert 1.5 < error.ended - stop < at_most(3)
        cont = ranks.cont(1)
        error = harness.raised(ranks.answer(1, 8), "RuntimeError")
        assert error.ended - cont < at_most(3)


KEPT: list[Any] = []


def leaver(rank: int, world: int, how: str) -> inrank.Raised | None:
    inrank.mark("up")
    if rank != world - 1:
        return inrank.catch(operate, "all_reduce", rank, world)
    inrank.gate("leave")
    if how == "abort":
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    elif how.startswith("destroy"):
        kept = [dist.group.WORLD, dist.group.WORLD._get_backend(torch.device("cpu"))]
        KEPT.extend(kept if how == "destroy, but keep the object" else [])
        del kept
        dist.destroy_process_group()
    elif how == "os._exit":
        os._exit(3)
    elif how == "segfault":
        ctypes.string_at(0)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["exit", "os._exit", "segfault", "destroy", "destroy, but keep the object", "abort"]
)
def test_one_that_leaves_while_others_need_it(how: str) -> None:
    with Ranks(3) as ranks:
        ranks.start(leaver, how, world=3, store="s")
        ranks.at("up")
        time.sleep(0.2)
        ranks.open("leave")
        left = time.monotonic()
        if how == "exit":  # The rank ends without destroy.
            ranks.answer(2)
            assert ranks.dismiss(2) == 0
            left = time.monotonic()
        for rank in (0, 1):
            error = ranks.answer(rank, 10)
            if how == "abort":  # The kind of its error is left open.
                harness.raised(error, "DistBackendError")
            else:
                harness.raised(error, "PeerFailed", ranks=[2])
            assert error.ended - left < WITHIN + 0.2


def early(rank: int, world: int) -> None:
    if rank:
        inrank.gate("rank 0 is in")
    else:
        inrank.mark("barrier")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
def test_leaving_after_a_barrier_is_no_error_for_one_still_in_it() -> None:
    """Ranks leave after a barrier, while rank 0 is stopped inside that barrier."""
    with Ranks(4) as ranks:
        ranks.start(early, world=4, store="s")
        ranks.at("barrier", 0)
        time.sleep(0.2)
        ranks.stop(0)
        ranks.open("rank 0 is in")
        end = time.monotonic() + 2 * SLOW
        while (
            ranks.busy - {0} and time.monotonic() < end
        ):  # One that needs rank 0 goes on when that is awake again.
            for rank in ranks.busy - {0}:
                ranks._collect(rank)
            time.sleep(0.01)
        gone = [r for r in (1, 2, 3) if r not in ranks.busy]
        assert {ranks.dismiss(r) for r in gone} <= {0}
        ranks.cont(0)
        assert set(ranks.values(10, dead=gone)) == set(range(4))
        assert [ranks.output(r) for r in range(4)] == [""] * 4


def early_cycles(rank: int, world: int) -> None:
    """Fast ranks destroy the group while a slow one leaves the barrier, many times."""
    dist.destroy_process_group()
    for i in range(25):
        inrank.init(f"early.{i}", rank, world)
        if rank == i % world:
            time.sleep(0.005)
        dist.barrier()
        dist.destroy_process_group()
    inrank.init("early.last", rank, world)


def test_destroy_right_after_a_barrier(pool: harness.Pool) -> None:
    pool.run(early_cycles, timeout=90)
