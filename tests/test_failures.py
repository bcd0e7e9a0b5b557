"""Ranks that die, stop or leave: who raises, what it says, how soon; and that life goes on."""

from __future__ import annotations

import ctypes
import os
import random
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import harness
import inrank
from harness import SLOW, Ranks

pytestmark = harness.only_bluefog

WITHIN = 1.0 * SLOW
LARGE = 1 << 20  # elements: many chunks, so that a death falls between two of them


def send_to_all(last: int, rank: int, x: torch.Tensor) -> None:
    if rank != last:
        dist.recv(x, last)
    else:
        for r in range(last):
            dist.send(x, r)


def send_to_one(last: int, rank: int, x: torch.Tensor) -> None:
    if rank != last:
        dist.send(x, last)
    else:
        for r in range(last):
            dist.recv(x, r)


def neighbor(x: torch.Tensor, rank: int, world: int) -> None:
    """Everyone with everyone."""
    import bluefog_pg

    weights = {r: 1.0 for r in range(world) if r != rank}
    bluefog_pg.neighbor_allreduce(
        x, self_weight=1.0, src_weights=weights, dst_weights=list(weights)
    )


def f(n: int) -> torch.Tensor:
    return torch.ones(n)


# None of them can end without the last rank.
OPERATIONS: dict[str, Callable[[int, int], Any]] = {
    "all_reduce": lambda r, w: dist.all_reduce(f(16)),
    "large all_reduce": lambda r, w: dist.all_reduce(f(LARGE)),
    "broadcast": lambda r, w: dist.broadcast(f(LARGE), w - 1),
    "all_gather": lambda r, w: dist.all_gather([f(5000) for _ in range(w)], f(5000)),
    "large all_gather": lambda r, w: dist.all_gather_into_tensor(f(w * LARGE // 4), f(LARGE // 4)),
    "reduce_scatter": lambda r, w: dist.reduce_scatter_tensor(f(LARGE // 4), f(w * LARGE // 4)),
    "barrier": lambda r, w: dist.barrier(),
    "neighbor_allreduce": lambda r, w: neighbor(f(LARGE), r, w),
    "recv": lambda r, w: send_to_all(w - 1, r, f(16)),
    "large send": lambda r, w: send_to_one(w - 1, r, f(4 * LARGE)),
}


def operate(name: str, rank: int, world: int) -> None:
    OPERATIONS[name](rank, world)


def dying(rank: int, world: int, operations: list[str], traffic: bool) -> list[Any]:
    """One death after another: the last rank dies in each round, the rest meet in a new group.

    traffic: all are in the middle of the operation; otherwise the victim never joins it.
    """
    told = []
    for round_, name in enumerate(operations):
        now = world - round_
        inrank.init(f"round.{round_}", rank, now)
        t = torch.ones(1000)
        dist.all_reduce(t)
        assert (t == now).all()
        inrank.mark(f"up.{round_}")
        if rank == now - 1 and not traffic:
            time.sleep(60)

        def forever(name: str = name, now: int = now) -> None:
            while True:
                operate(name, rank, now)

        error = inrank.catch(forever)
        again = inrank.catch(dist.all_reduce, torch.ones(1))
        began = time.monotonic()
        dist.destroy_process_group()
        told.append([error, again, time.monotonic() - began])
    return told


@pytest.mark.parametrize("traffic", [False, True], ids=["absent", "traffic"])
@pytest.mark.parametrize("first", range(0, len(OPERATIONS), 3))
def test_killed_ranks_are_named_and_survivors_go_on(first: int, traffic: bool) -> None:
    operations, world = list(OPERATIONS)[first : first + 3], 4
    rng = random.Random(first + traffic)
    with Ranks(world) as ranks:
        ranks.start(dying, operations, traffic)
        killed = []
        for round_ in range(len(operations)):
            victim = world - 1 - round_
            ranks.at(f"up.{round_}", *range(victim + 1))
            time.sleep(rng.uniform(0.1, 0.4))
            killed.append(ranks.kill(victim))
        told = ranks.values(30, dead=range(world - len(operations), world))
        assert sorted(told) == list(range(world - len(operations)))
        alive = world - len(operations)
        # The dead told nothing; of those that lived, each round is judged.
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
                assert took < 2 * SLOW, f"{where}: destroy took {took:.2f} s"
        assert ranks.leave()[0] == 0


def looping(rank: int, world: int) -> inrank.Raised | None:
    inrank.mark("up")

    def forever() -> None:
        while True:
            operate("all_reduce", rank, world)
            operate("large all_reduce", rank, world)

    return inrank.catch(forever)


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
    """The leak check around the test is the judge."""
    with Ranks(4) as ranks:
        ranks.start(looping, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        for rank in range(4):
            ranks.kill(rank)
        assert ranks.values(10, dead=range(4)) == {}


def locality(rank: int, world: int) -> Any:
    """Rank 3 dies: 0 and 1 talk on, in the same group and in one of their own."""
    pair = dist.new_group([0, 1])
    if rank == 3:
        inrank.mark("up")
        time.sleep(60)
    inrank.mark("up")
    inrank.gate("dead")
    time.sleep(0.2)
    told: list[Any] = [None]
    if rank < 2:
        for i in range(200):
            t = torch.full((i * 101 % 5000 + 1,), float(i))
            if rank == 0:
                dist.send(t, 1)
                dist.recv(t, 1, tag=1)
            else:
                dist.recv(t, 0)
                dist.send(t, 0, tag=1)
            dist.all_reduce(t, group=pair)
            assert (t == 2 * i).all()
        told = [inrank.catch(dist.send, torch.ones(4 * LARGE), 3)]
    return [*told, inrank.catch(dist.all_reduce, torch.ones(1))]


def test_live_ranks_talk_on() -> None:
    with Ranks(4) as ranks:
        ranks.start(locality, world=4, store="s")
        ranks.at("up")
        ranks.kill(3)
        ranks.procs[3].wait()
        ranks.open("dead")
        told = ranks.values(30, dead=[3])
        for error in [*told[0], *told[1], told[2][1]]:
            assert harness.raised(error, "PeerFailed", ranks=[3]).took() < WITHIN


def ring(rank: int, world: int, n: int) -> inrank.Raised | None:
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    x = torch.ones(n)
    inrank.mark("up")

    def forever() -> None:
        while True:
            bluefog_pg.neighbor_allreduce(x)

    return inrank.catch(forever)


@pytest.mark.parametrize("n", [1000, 4 * LARGE])
def test_a_death_reaches_those_who_are_not_its_neighbours(n: int) -> None:
    """Rank 0 has nothing to do with rank 2; its neighbours raise, keep their group and sleep."""
    with Ranks(4) as ranks:
        ranks.start(ring, n, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        killed = ranks.kill(2)
        for rank in (1, 3, 0):
            error = harness.raised(ranks.answer(rank, 8), "PeerFailed", ranks=[2])
            assert error.ended - killed < WITHIN, f"rank {rank}: {error.ended - killed:.2f} s"


def one_source_dies(rank: int, world: int, when: str) -> Any:
    """1 averages from 0 and 2; 0 only sends. 2 dies, and 1 keeps its group and sleeps."""
    import bluefog_pg

    x = torch.ones(16 * LARGE)
    edges: dict[str, Any] = {"self_weight": 1.0, "src_weights": {}, "dst_weights": [1]}
    if rank == 1:
        edges = {"self_weight": 0.5, "src_weights": {0: 0.25, 2: 0.25}, "dst_weights": []}
    dist.barrier()
    if rank == 2:
        if when == "streaming":
            bluefog_pg.neighbor_allreduce(x, **edges, async_op=True)
            while bluefog_pg.stats()["bytes_sent"] < x.nbytes // 2:
                pass
        else:
            time.sleep(0.3)
        (inrank.directory() / f"died.{time.monotonic()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    error = inrank.catch(bluefog_pg.neighbor_allreduce, x, **edges)
    return [error, time.monotonic()]


@pytest.mark.parametrize("when", ["streaming", "absent"])
def test_a_sender_does_not_hang_on_a_receiver_that_has_failed(when: str) -> None:
    with Ranks(3) as ranks:
        ranks.start(one_source_dies, when, world=3, store="s")
        error, _ = ranks.answer(1, 10)
        harness.raised(error, "PeerFailed", ranks=[2])
        _, ended = ranks.answer(0, 8)  # it may raise or not
        (died,) = (float(p.name[5:]) for p in ranks.dir.glob("died.*"))
        assert max(error.ended, ended) - died < 2 * SLOW


def stopped(rank: int, world: int, name: str) -> Any:
    inrank.init("stopped", rank, world, timeout=2)
    operate("all_reduce", rank, world)
    inrank.mark("up")
    inrank.gate("go", limit=60)  # the last rank is stopped here
    return inrank.catch(operate, name, rank, world)


@pytest.mark.parametrize(
    "name", ["all_reduce", "large all_reduce", "neighbor_allreduce", "barrier", "recv"]
)
def test_a_stopped_rank_is_named_at_the_limit(name: str) -> None:
    with Ranks(3) as ranks:
        ranks.start(stopped, name)
        ranks.at("up")
        ranks.stop(2)
        ranks.open("go")
        for rank in (0, 1):
            error = harness.raised(ranks.answer(rank, 8), "CollectiveTimeout", ranks=[2])
            assert 1.9 < error.took() < (2 + 1) * SLOW, f"{error.took():.2f} s: {error.text}"
            assert "timeout after 2" in error.text
        time.sleep(0.2)
        cont = ranks.cont(2)
        # It wakes up to a group whose others have given up. A small send needs nobody.
        error = ranks.answer(2, 8)
        if name != "recv":
            harness.raised(error, "RuntimeError")
            assert error.ended - cont < (2 + 1) * SLOW
        assert set(ranks.leave().values()) == {0}


def looping_with_a_limit(rank: int, world: int) -> inrank.Raised | None:
    inrank.init("limit", rank, world, timeout=2)
    return looping(rank, world)


def test_one_is_stopped_in_the_middle_of_traffic() -> None:
    with Ranks(4) as ranks:
        ranks.start(looping_with_a_limit)
        ranks.at("up")
        time.sleep(0.3)
        stop = ranks.stop(1)
        for rank in (0, 2, 3):
            error = harness.raised(ranks.answer(rank, 8), "CollectiveTimeout")
            assert error.ranks and 1 in error.ranks, error.text
            assert 1.5 < error.ended - stop < (2 + 1) * SLOW
        cont = ranks.cont(1)
        error = harness.raised(ranks.answer(1, 8), "RuntimeError")
        assert error.ended - cont < (2 + 1) * SLOW


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
        if how == "exit":  # without destroy
            ranks.answer(2)
            assert ranks.dismiss(2) == 0
            left = time.monotonic()
        for rank in (0, 1):
            error = ranks.answer(rank, 10)
            if how == "abort":  # what to call it is left open
                harness.raised(error, "DistBackendError")
            else:
                harness.raised(error, "PeerFailed", ranks=[2])
            assert error.ended - left < WITHIN + 0.2


def early(rank: int, world: int) -> str:
    if rank:
        inrank.gate("rank 0 is in")
    else:
        inrank.mark("barrier")
    dist.barrier()
    dist.destroy_process_group()
    return "left in peace"


def test_leaving_after_a_barrier_is_no_error_for_one_still_in_it() -> None:
    """barrier; destroy; exit, while rank 0 is stopped inside that barrier."""
    with Ranks(4) as ranks:
        ranks.start(early, world=4, store="s")
        ranks.at("barrier", 0)
        time.sleep(0.2)
        ranks.stop(0)
        ranks.open("rank 0 is in")
        end = time.monotonic() + 2 * SLOW
        while (
            ranks.busy - {0} and time.monotonic() < end
        ):  # may need rank 0: then it is awake again
            for rank in ranks.busy - {0}:
                ranks._collect(rank)
            time.sleep(0.01)
        gone = [r for r in (1, 2, 3) if r not in ranks.busy]
        assert {ranks.dismiss(r) for r in gone} <= {0}
        ranks.cont(0)
        assert set(ranks.values(10, dead=gone).values()) == {"left in peace"}
        assert [ranks.output(r) for r in range(4)] == [""] * 4


def stopped_receiver(rank: int, world: int) -> bool:
    """Rank 0 sends 5 frames and a small message, and leaves while rank 1 has taken none of them."""
    n = 5 << 15
    if rank == 0:
        works = [dist.isend(torch.full((n,), 7.0), 1), dist.isend(torch.full((3,), 8.0), 1, tag=1)]
        inrank.mark("announced")
        for work in works:
            work.wait()
        dist.destroy_process_group()
        return True
    inrank.gate("receive")
    large, small = torch.zeros(n), torch.zeros(3)
    works = [dist.irecv(large, 0), dist.irecv(small, 0, tag=1)]
    time.sleep(0.3)  # the engine's thread accepts
    inrank.mark("accepted")
    for work in works:
        work.wait()
    return bool((large == 7.0).all() and (small == 8.0).all())


def test_what_a_sender_has_sent_before_it_left_arrives() -> None:
    with Ranks(2) as ranks:
        ranks.start(stopped_receiver, world=2, store="s")
        ranks.at("announced", 0)
        ranks.stop(0)
        ranks.open("receive")
        ranks.at("accepted", 1)
        ranks.stop(1)
        ranks.cont(0)
        assert ranks.answer(0) is True
        ranks.cont(1)
        assert ranks.answer(1, 10) is True


def leaves_with_a_send_pending(rank: int, world: int) -> inrank.Raised | None:
    x = torch.ones(1 << 20)
    if rank == 0:
        work = dist.isend(x, 1)
        inrank.gate("leave")
        dist.destroy_process_group()
        assert work.is_completed()
        return None
    inrank.gate("receive")
    return inrank.catch(dist.recv, x, 0)


def test_a_sender_that_leaves_is_named_as_such() -> None:
    """What it broke off must not be taken for its giving up."""
    with Ranks(2) as ranks:
        ranks.start(leaves_with_a_send_pending, world=2, store="s")
        ranks.open("leave")
        assert ranks.answer(0) is None
        ranks.open("receive")
        harness.raised(ranks.answer(1, 10), "PeerFailed", ranks=[0])


def more_than_the_lane_holds(rank: int, world: int, n: int) -> list[float | str]:
    """Rank 0's first 20 messages time out, most of them before they were on their way."""
    if rank == 0:
        works = [dist.isend(torch.full((n,), float(k)), 1) for k in range(20)]
        for work in works:
            inrank.catch(work.wait)
        inrank.mark("timed out")
        works = [dist.isend(torch.full((n,), float(k)), 1) for k in range(20, 40)]
        for work in works:
            inrank.catch(work.wait)
        return []
    inrank.gate("receive")
    got: list[float | str] = []
    for _ in range(40):
        out = torch.full((n,), -1.0)
        error = inrank.catch(dist.recv, out, 0)
        got.append(error.kind if error else float(out[0]))
    return got


@pytest.mark.parametrize("n", [8, 100_000])
def test_messages_that_timed_out_keep_their_places(n: int) -> None:
    with Ranks(2) as ranks:
        ranks.start(more_than_the_lane_holds, n, world=2, store="s", timeout=2)
        ranks.at("timed out", 0)
        ranks.open("receive")
        got = ranks.values(60)[1]
        assert all(value in (float(k), "CollectiveTimeout") for k, value in enumerate(got)), got
        assert got[20:] == [float(k) for k in range(20, 40)]


def middle_of_a_line(rank: int, world: int) -> inrank.Raised | None:
    """Rank 0 needs rank 1, which needs rank 2, which leaves."""
    import bluefog_pg

    if rank == 2:
        dist.destroy_process_group()
        return None
    weights: dict[str, Any] = {"self_weight": 0.5, "src_weights": {rank + 1: 0.5}}
    weights["dst_weights"] = {0: 1.0} if rank == 1 else {}
    return inrank.catch(bluefog_pg.neighbor_allreduce, torch.ones(100_000), **weights)


def test_who_needs_one_that_failed_hears_who_left() -> None:
    with Ranks(3) as ranks:
        ranks.start(middle_of_a_line, world=3, store="s")
        for rank in (0, 1):
            error = ranks.answer(rank, 10)
            harness.raised(error, "PeerFailed", text="rank 2 ", ranks=[2])


def early_cycles(rank: int, world: int) -> int:
    """The same race many times: the fast ones destroy while the slow one leaves the barrier."""
    dist.destroy_process_group()
    for i in range(25):
        inrank.init(f"early.{i}", rank, world)
        if rank == i % world:
            time.sleep(0.005)
        dist.barrier()
        dist.destroy_process_group()
    inrank.init("early.last", rank, world)
    return 25


def test_destroy_right_after_a_barrier(pool: harness.Pool) -> None:
    assert pool.run(early_cycles, timeout=90) == [25] * 4


def gone_but_not_needed(rank: int, world: int) -> str:
    pair = dist.new_group([0, 1])
    dist.barrier()
    if rank == 2:
        return "gone"
    inrank.gate("gone")
    for i in range(100):
        t = torch.full((1000,), float(i))
        dist.all_reduce(t, group=pair)
        if rank == 0:
            dist.send(t, 1)
        else:
            dist.recv(t, 0)
        assert (t == 2 * i).all()
    return "worked on"


def test_an_exit_that_nobody_waits_for_is_no_error() -> None:
    with Ranks(3) as ranks:
        ranks.start(gone_but_not_needed, world=3, store="s")
        ranks.answer(2)
        assert ranks.dismiss(2) == 0  # without destroy
        ranks.open("gone")
        told = ranks.values(20, dead=[2])
        assert [told[r] for r in (0, 1)] == ["worked on"] * 2
