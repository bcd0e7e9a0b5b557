"""When a rank dies, stops or leaves, messages end or arrive, and the right rank is named."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import SLOW, WITHIN, Ranks, at_most

LARGE = 1 << 20  # elements of many frames


def locality(rank: int, world: int) -> Any:
    """Rank 3 dies: ranks 0 and 1 talk on, in the same group and in one of their own."""
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


Edges = set[tuple[int, int]]


def on_a_graph(rank: int, world: int, graph: Edges, sizes: list[int], dying: dict[int, int]) -> Any:
    """Average once for each size, and return what each failed call told.

    A failed call tells its number, whom it needed of those it blamed, and how long it took. A rank
    whose call raised goes on without the blamed, and uses its memory again at once. `dying` has the
    call before which a rank dies.
    """
    import bluefog_pg

    rng = random.Random(rank)
    sources = {i for i, j in graph if j == rank}
    destinations = {j for i, j in graph if i == rank}
    told: list[Any] = []
    wrong: list[str] = []
    talk = torch.empty(LARGE)
    pending = dist.irecv(talk, 0) if rank == 1 else None
    for i, n in enumerate(sizes):
        if dying.get(rank) == i:
            os.kill(os.getpid(), signal.SIGKILL)
        if i % 10 == 9:
            time.sleep(rng.choice([0, 0, 0.2]))  # Nobody's error waits for a slow rank.
        x = torch.full((n,), float(100 * i + rank))
        weights: dict[str, Any] = {"self_weight": 1.0, "src_weights": dict.fromkeys(sources, 1.0)}
        began = time.monotonic()
        try:
            out = bluefog_pg.neighbor_allreduce(x, **weights, dst_weights=list(destinations))
        except bluefog_pg.PeerFailed as error:
            x.fill_(-1)
            needed = (sources | destinations) & set(error.ranks)
            told.append([i, sorted(needed), time.monotonic() - began])
            sources, destinations = sources - set(error.ranks), destinations - set(error.ranks)
            continue
        want = 100 * i + rank + sum(100 * i + r for r in sources)
        if not (out == want).all():
            wrong.append(f"call {i}: {out.unique()} instead of {want}")
    if rank == 0:
        dist.send(torch.full((LARGE,), 7.0), 1)
    if pending:
        pending.wait()
        if not (talk == 7).all():
            wrong.append(f"message lost: {talk.unique()} instead of 7")
    assert not wrong, f"{wrong}; raised: {told}"
    return told


def survive(graph: Edges, sizes: list[int], dying: dict[int, int]) -> dict[int, list[Any]]:
    with Ranks(5) as ranks:
        ranks.start(on_a_graph, graph, sizes, dying, world=5, store="s")
        told = ranks.values(40, dead=dying)
    for rank, events in told.items():
        for _, needed, took in events:
            assert needed, f"rank {rank} raised without need: {events}"
            assert took < WITHIN, f"rank {rank}: {events}"
    return told


@pytest.mark.slow
@pytest.mark.parametrize("n", [16, 1000, LARGE])
def test_a_death_fails_the_calls_that_need_the_dead_and_no_other(n: int) -> None:
    """The others' calls still meet each other, call by call: 4 -> 0 -> 1 -> 2, 1 -> 3 -> 4."""
    graph = {(4, 0), (0, 1), (1, 2), (1, 3), (3, 4)}
    told = survive(graph, [n] * 40, {4: 5})
    assert [len(told[rank]) for rank in (0, 1, 2)] == [1, 0, 0], told


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_deaths_on_random_digraphs(seed: int) -> None:
    rng = random.Random(seed)
    every = [(i, j) for i in range(5) for j in range(5) if i != j]
    sizes = [rng.choice([1, 1000, 40_000, LARGE // 4]) for _ in range(60)]
    survive(set(rng.sample(every, 8)), sizes, {4: rng.randrange(40), 3: rng.randrange(40)})


def ring(rank: int, world: int, n: int) -> inrank.Raised | None:
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    x = torch.ones(n)
    inrank.mark("up")

    def forever() -> None:
        while True:
            bluefog_pg.neighbor_allreduce(x)

    error = inrank.catch(forever)
    dist.destroy_process_group()
    return error


@pytest.mark.slow
@pytest.mark.parametrize("n", [1000, 4 * LARGE])
def test_who_leaves_after_a_death_tells_of_it(n: int) -> None:
    """Rank 0 has nothing to do with rank 2, whose neighbors raise and leave the group."""
    with Ranks(4) as ranks:
        ranks.start(ring, n, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        killed = ranks.kill(2)
        for rank in (1, 3, 0):
            error = harness.raised(ranks.answer(rank, 8), "PeerFailed")
            assert error.ended - killed < WITHIN, f"rank {rank}: {error.ended - killed:.2f} s"
            assert error.ranks is not None
            assert 2 in error.ranks, error.text
            # The error says whom rank 0 lacks, as one who goes on without the blamed goes on.
            assert rank or {1, 3} & set(error.ranks), error.text


def one_source_dies(rank: int, world: int, when: str) -> Any:
    """Rank 1 averages from 0 and 2, and 0 only sends. 2 dies, and 1 keeps its group and sleeps."""
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


@pytest.mark.slow
@pytest.mark.parametrize("when", ["streaming", "absent"])
def test_a_sender_does_not_hang_on_a_receiver_that_has_failed(when: str) -> None:
    with Ranks(3) as ranks:
        ranks.start(one_source_dies, when, world=3, store="s")
        error, _ = ranks.answer(1, 10)
        harness.raised(error, "PeerFailed", ranks=[2])
        nothing, ended = ranks.answer(0, 8)
        assert nothing is None, nothing
        (died,) = (float(p.name[5:]) for p in ranks.dir.glob("died.*"))
        assert max(error.ended, ended) - died < at_most(2)


def stopped_receiver(rank: int, world: int) -> None:
    """Rank 0 sends 5 frames and a small message, and leaves while rank 1 has taken none of them."""
    n = 5 << 15
    if rank == 0:
        works = [dist.isend(torch.full((n,), 7.0), 1), dist.isend(torch.full((3,), 8.0), 1, tag=1)]
        dist.send(torch.zeros(1), 1, tag=2)  # It goes after the others.
        inrank.gate("send")
        for work in works:
            work.wait()
        dist.destroy_process_group()
        return
    dist.recv(torch.zeros(1), 0, tag=2)
    inrank.mark("announced")
    inrank.gate("receive")
    large, small = torch.zeros(n), torch.zeros(3)
    works = [dist.irecv(large, 0), dist.irecv(small, 0, tag=1)]
    time.sleep(at_most(0.3))  # The engine's thread accepts by then, and nothing tells when.
    inrank.mark("accepted")
    for work in works:
        work.wait()
    assert (large == 7.0).all(), f"{large.unique()} instead of 7"
    assert (small == 8.0).all(), f"{small.unique()} instead of 8"


def test_what_a_sender_has_sent_before_it_left_arrives() -> None:
    with Ranks(2) as ranks:
        ranks.start(stopped_receiver, world=2, store="s")
        ranks.at("announced", 1)
        ranks.stop(0)
        ranks.open("receive")
        ranks.open("send")
        ranks.at("accepted", 1)
        ranks.stop(1)
        ranks.cont(0)
        ranks.answer(0)
        ranks.cont(1)
        ranks.join(10)


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
    """What the sender broke off is not taken for the receiver's giving up."""
    with Ranks(2) as ranks:
        ranks.start(leaves_with_a_send_pending, world=2, store="s")
        ranks.open("leave")
        assert ranks.answer(0) is None
        ranks.open("receive")
        harness.raised(ranks.answer(1, 10), "PeerFailed", ranks=[0])
        ranks.join()


def leaves_with_a_receive_pending(rank: int, world: int) -> inrank.Raised | None:
    x = torch.ones(1 << 20)
    if rank == 0:
        work = dist.isend(x, 1)
        inrank.mark("announced")
        inrank.gate("gone")
        return inrank.catch(work.wait)
    inrank.gate("receive")
    work = dist.irecv(x, 0)
    time.sleep(at_most(0.3))  # The engine's thread accepts by then, and nothing tells when.
    dist.destroy_process_group()
    assert work.is_completed()
    return None


def test_a_receiver_that_leaves_is_named_as_such() -> None:
    with Ranks(2) as ranks:
        ranks.start(leaves_with_a_receive_pending, world=2, store="s")
        ranks.at("announced", 0)
        ranks.stop(0)
        ranks.open("receive")
        assert ranks.answer(1) is None
        ranks.open("gone")
        ranks.cont(0)
        harness.raised(ranks.answer(0, 10), "PeerFailed", ranks=[1])
        ranks.join()


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
        ranks.start(more_than_the_lane_holds, n, world=2, store="s", timeout=2 * SLOW)
        ranks.at("timed out", 0)
        ranks.open("receive")
        got = ranks.values(60)[1]
        assert all(value in (float(k), "CollectiveTimeout") for k, value in enumerate(got)), got
        assert got[20:] == [float(k) for k in range(20, 40)]


def middle_of_a_line(rank: int, world: int) -> inrank.Raised | None:
    """Rank 0 needs rank 1, which needs rank 2, which leaves, and sends to rank 0 all the same."""
    import bluefog_pg

    if rank == 2:
        dist.destroy_process_group()
        return None
    weights: dict[str, Any] = {"self_weight": 0.5, "src_weights": {rank + 1: 0.5}}
    weights["dst_weights"] = {0: 1.0} if rank == 1 else {}
    return inrank.catch(bluefog_pg.neighbor_allreduce, torch.ones(100_000), **weights)


def test_who_lacks_one_that_left_serves_the_others() -> None:
    with Ranks(3) as ranks:
        ranks.start(middle_of_a_line, world=3, store="s")
        harness.raised(ranks.answer(1, 10), "PeerFailed", text="rank 2 ", ranks=[2])
        assert ranks.answer(0, 10) is None


def gone_but_not_needed(rank: int, world: int) -> None:
    pair = dist.new_group([0, 1])
    dist.barrier()
    if rank == 2:
        return
    inrank.gate("gone")
    for i in range(100):
        t = torch.full((1000,), float(i))
        dist.all_reduce(t, group=pair)
        if rank == 0:
            dist.send(t, 1)
        else:
            dist.recv(t, 0)
        assert (t == 2 * i).all(), f"turn {i}: {t.unique()} instead of {2 * i}"


def test_an_exit_that_nobody_waits_for_is_no_error() -> None:
    with Ranks(3) as ranks:
        ranks.start(gone_but_not_needed, world=3, store="s")
        ranks.answer(2)
        assert ranks.dismiss(2) == 0  # The rank ends without destroy.
        ranks.open("gone")
        ranks.join(20, dead=[2])
