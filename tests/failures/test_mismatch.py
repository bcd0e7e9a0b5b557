"""Ranks that disagree hear of it on all ranks involved, in time, with both sides' names."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import networkx as nx
import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.operations import extremes, group_of_machines

WORLD = 3


def f(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(n, dtype=dtype)


def neighbor(x: torch.Tensor, group: Any) -> Any:
    import bluefog_pg

    return bluefog_pg.neighbor_allreduce(x, group=group)


def gather(n: int, group: Any) -> Any:
    return dist.all_gather_into_tensor(f(n * WORLD), f(n), group=group)


def scatter(n: int, group: Any) -> Any:
    return dist.reduce_scatter_tensor(f(n), f(n * WORLD), group=group)


# Each name has what the others call, what the odd rank calls, and what each error must name of
# both.
BIG = 1 << 19
CASES: dict[str, tuple[Any, Any, list[str]]] = {
    "shapes": (
        lambda g: dist.all_reduce(f(4), group=g),
        lambda g: dist.all_reduce(f(5), group=g),
        [r"float32\[4\]", r"float32\[5\]"],
    ),
    "kinds": (
        lambda g: dist.all_reduce(f(4), group=g),
        lambda g: dist.all_reduce(f(4, torch.float64), group=g),
        [r"float32\[4\]", r"float64\[4\]"],
    ),
    "kinds of the same width": (
        lambda g: dist.all_reduce(f(4, torch.float16), group=g),
        lambda g: dist.all_reduce(f(4, torch.bfloat16), group=g),
        [r"\bfloat16\[4\]", r"bfloat16\[4\]"],
    ),
    "large": (
        lambda g: dist.all_reduce(f(BIG), group=g),
        lambda g: dist.all_reduce(f(BIG + 1), group=g),
        [rf"float32\[{BIG}\]", rf"float32\[{BIG + 1}\]"],
    ),
    "small and large": (
        lambda g: dist.all_reduce(f(2), group=g),
        lambda g: dist.all_reduce(f(BIG), group=g),
        [r"float32\[2\]", rf"float32\[{BIG}\]"],
    ),
    "empty": (
        lambda g: dist.all_reduce(f(0), group=g),
        lambda g: dist.all_reduce(f(3), group=g),
        [r"float32\[0\]", r"float32\[3\]"],
    ),
    "splits of as many": (
        lambda g: dist.all_reduce_coalesced([f(4), f(4)], group=g),
        lambda g: dist.all_reduce_coalesced([f(3), f(5)], group=g),
        [r"float32\[8\]", "split or shaped differently"],
    ),
    "operators": (
        lambda g: dist.all_reduce(f(4), dist.ReduceOp.SUM, group=g),
        lambda g: dist.all_reduce(f(4), dist.ReduceOp.MAX, group=g),
        ["SUM", "MAX"],
    ),
    "roots": (
        lambda g: dist.broadcast(f(4), 0, group=g),
        lambda g: dist.broadcast(f(4), 1, group=g),
        [r"\b0\b", r"\b1\b"],
    ),
    "broadcast shapes": (
        lambda g: dist.broadcast(f(4), 0, group=g),
        lambda g: dist.broadcast(f(6), 0, group=g),
        [r"float32\[4\]", r"float32\[6\]"],
    ),
    "calls": (
        lambda g: dist.all_reduce(f(4), group=g),
        lambda g: dist.barrier(group=g),
        ["all_?reduce", "barrier"],
    ),
    "calls of the same size": (
        lambda g: dist.all_reduce(f(4), group=g),
        lambda g: dist.broadcast(f(4), 0, group=g),
        ["all_?reduce", "broadcast"],
    ),
    "gather and scatter": (
        lambda g: gather(5, g),
        lambda g: scatter(5, g),
        ["all_?gather", "reduce_?scatter"],
    ),
    "gather sizes": (lambda g: gather(5, g), lambda g: gather(6, g), [r"\[5\]", r"\[6\]"]),
    "scatter sizes": (lambda g: scatter(5, g), lambda g: scatter(7, g), [r"\[\d+\]"]),
    "kinds that are moved as bytes": (
        lambda g: dist.broadcast(f(4, torch.float8_e4m3fn), 0, group=g),
        lambda g: dist.broadcast(f(4, torch.float8_e5m2), 0, group=g),
        ["float8_e4m3fn", "float8_e5m2"],
    ),
    "neighbor shapes": (
        lambda g: neighbor(f(4), g),
        lambda g: neighbor(f(6), g),
        [r"float32\[4\]", r"float32\[6\]"],
    ),
    "neighbor kinds": (
        lambda g: neighbor(f(4), g),
        lambda g: neighbor(f(4, torch.float64), g),
        [r"float32\[4\]", r"float64\[4\]"],
    ),
}


def disagree(rank: int, world: int, name: str, odd: int) -> list[Any]:
    """Call in a group of its own, which a mismatch ends; the world must not notice."""
    group = dist.new_group()
    dist.all_reduce(f(1), group=group)
    dist.barrier()
    usual, different, _ = CASES[name]
    first = inrank.catch(different if rank == odd else usual, group)
    again = inrank.catch(dist.all_reduce, f(1), group=group)
    dist.destroy_process_group(group)
    t = f(2)
    dist.all_reduce(t)
    return [first, again, t[0].item()]


@pytest.mark.parametrize("name", list(CASES))
def test_every_rank_names_both_sides(pool: harness.Pool, name: str) -> None:
    odd = list(CASES).index(name) % WORLD
    told = pool.run(disagree, name, odd, world=WORLD, timeout=40)
    start = max(first.began for first, _, _ in told if first) if told[0][0] else 0
    for rank, (first, again, after) in enumerate(told):
        error = harness.raised(first, "Mismatch")
        assert "DistBackendError" in error.kinds
        assert error.took(start) < harness.at_most(1.0), f"rank {rank}: {error.took(start):.2f} s"
        who = rf"\[bluefog\] rank {rank} \({rank}/{WORLD} of group "
        assert re.match(who, error.text), error.text
        for part in CASES[name][2]:
            assert re.search(part, error.text), f"rank {rank} does not say {part!r}: {error.text}"
        # An error names the two sides. In a collective, they are the same two on every rank.
        assert error.ranks and odd in error.ranks and len(error.ranks) == 2, error.text
        if not name.startswith("neighbor"):
            assert error.ranks == told[0][0].ranks
        # A failed group says so at once, for ever. What neighbors exchange leaves the collectives
        # whole.
        if not name.startswith("neighbor") or again is not None:
            assert harness.raised(again, "RuntimeError").took() < harness.at_most(1.0)
        assert after == WORLD


def one_is_late(rank: int, world: int, n: int) -> inrank.Raised | None:
    """Rank 2 comes when the others have raised, or after five seconds."""
    group = dist.new_group()
    dist.all_reduce(f(1), group=group)
    dist.barrier()
    if rank == 2:
        inrank.catch(inrank.meet, f"late.{n}", 2, 5)
    error = inrank.catch(dist.all_reduce, f(n + (rank == 1)), group=group)
    inrank.mark(f"late.{n}")
    dist.barrier()
    dist.destroy_process_group(group)
    return error


@pytest.mark.parametrize("n", [4, BIG])
def test_a_mismatch_waits_for_nobody_else(pool: harness.Pool, n: int) -> None:
    told = pool.run(one_is_late, n, world=3, timeout=25)
    start = max((error.began for error in told[:2] if error), default=0.0)
    for error in told:
        harness.raised(error, "Mismatch", ranks=[0, 1], text=f"float32[{n + 1}]")
        assert error.took(start) < harness.at_most(1.0), f"{error.took(start):.2f} s"


def one_averages(rank: int, world: int, n: int) -> inrank.Raised | None:
    group = dist.new_group(timeout=timedelta(seconds=4))
    dist.all_reduce(f(1), group=group)
    dist.barrier()
    error = inrank.catch(neighbor if rank else dist.all_reduce, f(n), group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    return error


@pytest.mark.parametrize("n", [4, BIG])
def test_a_collective_against_an_averaging(pool: harness.Pool, n: int) -> None:
    told = pool.run(one_averages, n, world=2, timeout=20)
    start = max((error.began for error in told if error), default=0.0)
    for error in told:
        harness.raised(error, "Mismatch", ranks=[0, 1], text="neighbor_allreduce")
        assert re.search(r"(?<!neighbor_)all_?reduce", error.text), error.text
        assert error.took(start) < harness.at_most(1.5), f"{error.took(start):.2f} s"


def refused(rank: int, world: int) -> list[Any]:
    """Rank 1 refuses what rank 0 sends first; ranks 0 and 2 exchange all the while."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=3))
    sources: dict[int, float] = {0: {2: 1.0}, 1: {0: 1.0}, 2: {0: 1.0}}[rank]
    edges = {"src_weights": sources, "dst_weights": {0: [1, 2], 1: [], 2: [0]}[rank]}
    told: list[Any] = []

    def average(x: torch.Tensor) -> None:
        got = bluefog_pg.neighbor_allreduce(x, self_weight=0.0, **edges, group=group)
        told.append(sorted(set(got.tolist())))

    # Rank 1 refuses after rank 0's first call has ended, and before its second one begins.
    if rank == 1:
        dist.recv(f(1), 0, group=group)
    has_refused = dist.irecv(f(1), 1, group=group) if rank == 0 else None
    for call in range(4):
        n = 6 if (rank, call) == (1, 0) else 4
        error = inrank.catch(average, torch.full((n,), 100.0 * rank + call))
        told += [error] if error else []
        if call == 0 and has_refused:
            dist.send(f(1), 1, group=group)
            has_refused.wait()
        elif call == 0 and rank == 1:
            dist.send(f(1), 0, group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    return told


def test_calls_stay_aligned_after_a_late_refusal(pool: harness.Pool) -> None:
    first, second, third = pool.run(refused, world=3, timeout=25)
    assert third == [[0.0], [1.0], [2.0], [3.0]]
    harness.raised(second[0], "Mismatch", ranks=[0, 1])
    assert second[1:] == [[1.0], [2.0], [3.0]]
    harness.raised(first[1], "Mismatch")
    assert [*first[:1], *first[2:]] == [[200.0], [202.0], [203.0]]


def asynchronous(rank: int, world: int) -> list[Any]:
    group = dist.new_group()
    work = dist.all_reduce(f(4 + (rank == 1)), group=group, async_op=True)
    end = time.monotonic() + 5
    while not work.is_completed() and time.monotonic() < end:
        time.sleep(0.005)
    told = [work.is_completed(), work.is_success(), work.exception() is not None]
    errors = [inrank.catch(work.wait), inrank.catch(work.wait)]
    errors.append(inrank.catch(work.get_future().wait))
    dist.barrier()
    dist.destroy_process_group(group)
    return [told, errors]


def test_an_asynchronous_one_fails_its_work_and_future(pool: harness.Pool) -> None:
    for told, errors in pool.run(asynchronous, world=WORLD):
        assert told == [True, False, True]
        assert [e.kind for e in errors[:2]] == ["Mismatch"] * 2
        assert "float32[4]" in errors[2].text and "float32[5]" in errors[2].text


def odd_neighbor(rank: int, world: int, n: int) -> list[Any]:
    means: list[torch.Tensor] = []
    x = torch.full((n + (rank == 2),), float(rank))
    first = inrank.catch(lambda: means.append(neighbor(x, None)))
    if first is None:
        # Its neighbors, 0 and 3, had given it all before they heard of the odd rank.
        assert rank == 1, "a neighbor of the odd rank heard of nothing"
        torch.testing.assert_close(means[0], torch.full((n,), 4 / 3))
    dist.barrier()
    later = [inrank.catch(neighbor, torch.ones(n), None) for _ in range(3)]
    return [first, later[-1]]


def test_neighbors_of_neighbors_hear_of_it(pool: harness.Pool) -> None:
    """In a graph of 4 ranks with two in-neighbors each, rank 1 does not meet the odd rank 2."""
    for rank, (first, last) in enumerate(pool.run(odd_neighbor, BIG, world=4)):
        assert last is None
        if first is None:
            continue
        assert first.ended - first.began < harness.at_most(1.0)
        told = harness.raised(first, "Mismatch").text
        heard_of_it = "ranks did not agree on the matching" in told
        assert heard_of_it or (rank != 1 and f"rank {rank} called" in told), told


def unlike(rank: int, world: int, how: str) -> list[Any]:
    """The last rank does something else in the second call; later calls are averages of all."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=2.0 * harness.SLOW))
    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world), group=group)
    average = bluefog_pg.neighbor_allreduce
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "gathers": lambda x: bluefog_pg.neighbor_allgather(x, group=group),
        "averages two": lambda x: average([x, x], group=group),
    }
    told = list[Any]()
    for step in range(6):
        x = torch.full((4,), 10.0 * step + rank)
        is_odd = step == 1 and rank == world - 1
        call = calls[how] if is_odd else lambda x: average(x, group=group).tolist()
        told.append(inrank.outcome(call, x))
    dist.barrier()
    dist.destroy_process_group(group)
    return told


@pytest.mark.parametrize("how", ["gathers", "averages two"])
def test_unlike_calls_of_neighbors_meet_and_those_after_them(pool: harness.Pool, how: str) -> None:
    for first, second, *later in pool.run(unlike, how, world=WORLD):
        assert first == [1.0] * 4
        assert harness.raised(second, "Mismatch").took() < harness.WITHIN
        assert later == [[10.0 * step + 1.0] * 4 for step in range(2, 6)]


def among_machines(rank: int, world: int, how: str) -> list[Any]:
    """Rank 0 does something else in the second call, or is late; all go on."""
    import bluefog_pg

    told = list[Any]()
    with group_of_machines(2, 2.0 * harness.SLOW) as group:
        edges = nx.cycle_graph([0, 1, 3, 2]).to_directed()  # the edges that machines use
        bluefog_pg.set_topology(edges, group=group)
        ring = bluefog_pg.topology_util.RingGraph(2)
        bluefog_pg.set_machine_topology(ring, group=group)
        average = partial(bluefog_pg.neighbor_allreduce, group=group)
        of_machines = partial(bluefog_pg.hierarchical_neighbor_allreduce, group=group)
        usual, odd = (average, of_machines) if how == "of machines" else (of_machines, average)
        for step in range(6):
            is_odd = step == 1 and rank == 0
            if is_odd and how == "late":
                time.sleep(3.0 * harness.SLOW)
            call = odd if is_odd and how != "late" else (of_machines, usual)[step % 2]
            x = torch.full((40_000,), 12.0 * step + rank)
            told.append(inrank.outcome(extremes, call, x))
            if step == 1:
                dist.barrier()
    return told


@pytest.mark.parametrize("how", ["of neighbors", "of machines", "late"])
def test_averages_of_machines_after_one_that_did_not_meet(pool: harness.Pool, how: str) -> None:
    neighbors = {0: [0, 1, 2], 1: [0, 1, 3], 2: [0, 2, 3], 3: [1, 2, 3]}
    for rank, (first, second, *later) in enumerate(pool.run(among_machines, how, world=4)):
        assert first == (1.5, 1.5)
        if how == "of machines" and rank == 3 and not isinstance(second, inrank.Raised):
            assert second == (14.0, 14.0)  # Its neighbors sent before they heard of it.
        elif how != "late" or rank != 0:
            harness.raised(second, "CollectiveTimeout" if how == "late" else "Mismatch")
        mean = sum(neighbors[rank]) / 3 if how == "of machines" else 1.5
        want = [12.0 * step + (mean if step % 2 else 1.5) for step in range(2, 6)]
        assert later == [pytest.approx((x, x)) for x in want]


def of_unlike_machines(rank: int, world: int) -> inrank.Raised | None:
    import bluefog_pg

    each = world if rank == 0 else 2
    with group_of_machines(each) as group:
        full = bluefog_pg.topology_util.FullyConnectedGraph(world // each)
        bluefog_pg.set_machine_topology(full, group=group)
        return inrank.catch(bluefog_pg.hierarchical_neighbor_allreduce, torch.ones(8), group=group)


def test_ranks_that_see_other_machines(pool: harness.Pool) -> None:
    for error in pool.run(of_unlike_machines, world=4):
        harness.raised(error, "Mismatch")


def unequal_messages(rank: int, world: int, n: int, dtype: str) -> inrank.Raised | None:
    group = dist.new_group([0, 1])
    if rank == 0:
        error = inrank.catch(dist.send, f(4), 1, group=group)
    else:
        error = inrank.catch(dist.recv, f(n, getattr(torch, dtype)), 0, group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    return error


@pytest.mark.parametrize(("n", "dtype"), [(3, "float32"), (5, "float32"), (4, "int32")])
def test_a_receive_of_another_size_or_kind(pool: harness.Pool, n: int, dtype: str) -> None:
    sender, receiver = pool.run(unequal_messages, n, dtype, world=2)
    error = harness.raised(receiver, "Mismatch", ranks=[0, 1])
    assert "float32[4]" in error.text and f"{dtype}[{n}]" in error.text
    assert error.took() < harness.at_most(1.0)
    assert sender is None or "Mismatch" in sender.kinds  # A small send is over before.


def ahead_in_disagreement(rank: int, world: int) -> None:
    bad = []
    for i in range(40):
        group = dist.new_group()
        first = inrank.catch(dist.all_reduce, torch.ones(1), group=group)
        if rank != 2:
            inrank.catch(dist.all_reduce, torch.ones((1 << 19) + rank), group=group)
        dist.barrier()
        dist.destroy_process_group(group)
        if first:
            bad.append(f"round {i}: {first.text}")
    assert not bad, bad


def test_a_call_that_agrees_is_not_hurt_by_a_later_one_that_does_not(pool: harness.Pool) -> None:
    pool.run(ahead_in_disagreement, world=3)


def sends_after_a_look(rank: int, world: int) -> list[Any]:
    x, y = torch.ones(4), torch.ones(4)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        looked = inrank.catch(work.wait, timedelta(seconds=1))
        dist.send(y, 1)
        work.wait()
    else:
        looked = None
        dist.recv(y, 0)
        dist.all_reduce(x)
    return [looked and looked.kind, x.tolist()]


def test_a_wait_with_a_limit_is_no_mismatch(pool: harness.Pool) -> None:
    told = pool.run(sends_after_a_look, world=2)
    assert told == [["CollectiveTimeout", [2.0] * 4], [None, [2.0] * 4]]
