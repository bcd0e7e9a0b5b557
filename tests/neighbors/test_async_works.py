"""Neighbor operations are under way by their names, many at once, in groups, and in a profile."""

from __future__ import annotations

import os
import random
import time
import weakref
from typing import Any
from unittest import mock

import networkx as nx
import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.operations import MACHINE_SIZE, OPERATIONS, ready_group, tensors

# The first size fits one frame, and half of the second one needs more than one frame.
SIZES = (3, 70_001)


def in_any_order(rank: int, world: int, n: int) -> None:
    """Call all operations, four of each at once.

    Every rank has its own order for issuing and waiting.
    """
    calls = [(op, f"{op}, {i}") for op in OPERATIONS for i in range(4)]
    values = {name: float(i) for i, (_, name) in enumerate(calls)}
    order = random.Random(rank)
    with ready_group() as group:
        alone = {}
        for op, name in calls:
            x = torch.full((n,), 100 * values[name] + rank)
            alone[name] = tensors(OPERATIONS[op](x, group))
        works = {}
        order.shuffle(calls)
        for op, name in calls:
            x = torch.full((n,), 100 * values[name] + rank)
            works[name] = OPERATIONS[op](x, group, name=name, async_op=True)
        order.shuffle(calls)
        bad = []
        for _, name in calls:
            got = tensors(works[name])
            if not all(torch.equal(a, b) for a, b in zip(got, alone[name], strict=True)):
                bad.append(f"{name}: {[t[0].item() for t in got]}")
    assert not bad, bad


@pytest.mark.parametrize("n", SIZES)
def test_operations_match_by_name_in_any_order(pool: harness.Pool, n: int) -> None:
    pool.run(in_any_order, n)


def twenty(rank: int, world: int, n: int, reverse: bool) -> list[float]:
    """Gather without names: operations match in the order issued, whoever is awaited first."""
    import bluefog_pg

    ring = {"src_ranks": [(rank - 1) % world], "dst_ranks": [(rank + 1) % world]}
    works = []
    for i in range(20):
        x = torch.full((n,), float(100 * i + rank))
        works.append(bluefog_pg.neighbor_allgather(x, **ring, async_op=True))
        if i % 7 == rank:
            time.sleep(0.002)
    for work in reversed(works) if reverse else works:
        work.wait()
    return [work.result()[0][-1].item() for work in works]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_twenty_at_once(pool: harness.Pool, n: int, reverse: bool) -> None:
    for rank, got in enumerate(pool.run(twenty, n, reverse)):
        assert got == [100 * i + (rank - 1) % 4 for i in range(20)]


def lines(rank: int, world: int) -> list[float]:
    """Calls with a name, the empty one too, match beside those of other names and of none."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    values = {None: 0.0, "a": 100.0, "": 200.0, "b": 300.0}
    gaps = []
    for again in range(3):  # A name may be used again.
        order = sorted(values, key=lambda name: (values[name] * (rank + 1) + 50 * again) % 170)
        works = []
        for name in order:
            x = torch.full((5,), values[name] + again)
            works.append((x, bluefog_pg.neighbor_allreduce(x, name=name, async_op=True)))
        for x, work in works:
            work.wait()
            gaps.append((work.result()[0] - x).abs().max().item())
    return gaps


def test_names_are_lines_of_their_own(pool: harness.Pool) -> None:
    assert pool.run(lines) == [[0.0] * 12] * 4


def results(rank: int, world: int, op: str) -> list[Any]:
    """Return what a Work raises before its end, and its shapes after it."""
    with ready_group() as group:
        x = torch.ones(2, 3)
        dist.barrier(group)
        if rank == 0:
            time.sleep(0.2)  # All others need this rank, or one that does.
        work = OPERATIONS[op](x, group, async_op=True)
        early = None if rank == 0 or work.is_completed() else inrank.catch(work.result)
        done = work.wait()
        shapes = [tuple(t.shape) for t in work.result()]
        future = work.get_future().value()
        return [early, done, work.is_completed(), shapes, isinstance(future, list)]


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "neighbor_allreduce": [(2, 3)],
    "neighbor_allreduce of a list": [(2, 3), (2, 3), (1,)],
    "neighbor_allgather": [(4, 3)],
    "neighbor_alltoall": [(6,), (6,)],
    "pair_gossip": [(2, 3)],
    "hierarchical_neighbor_allreduce": [(2, 3)],
}


@pytest.mark.parametrize("op", OPERATIONS)
def test_results_of_works(pool: harness.Pool, op: str) -> None:
    told = pool.run(results, op)
    for early, *ended in told:
        if early is not None:
            assert "wait()" in harness.raised(early, "RuntimeError").text
        assert ended == [True, True, SHAPES[op], True]
    assert told[1][0] is not None  # Rank 1 is rank 0's partner in all operations.


def grouped(rank: int, world: int, op: str) -> list[Any]:
    """Call an operation in groups of two ranks, whose numbers there are others."""
    import bluefog_pg

    told = []
    for ranks in ([1, 3], [0, 2]):
        group = dist.new_group(ranks)
        if rank in ranks:
            bluefog_pg.set_topology(group=group)
            with mock.patch.dict(os.environ, {MACHINE_SIZE: "2"}):
                bluefog_pg.set_machine_topology(nx.DiGraph([(0, 0)]), group=group)
            out = tensors(OPERATIONS[op](torch.full((2, 2), float(rank)), group))
            near = bluefog_pg.in_neighbor_ranks(group)
            told = [near == [1 - ranks.index(rank)], [t.unique().tolist() for t in out]]
            dist.barrier(group)
            dist.destroy_process_group(group)
    return told


@pytest.mark.parametrize("op", OPERATIONS)
def test_groups_of_some_ranks(pool: harness.Pool, op: str) -> None:
    for rank, told in enumerate(pool.run(grouped, op)):
        peer = (rank + 2) % 4
        value = peer if op in ("neighbor_allgather", "neighbor_alltoall") else (rank + peer) / 2
        assert told == [True, [[value]] * (3 if "list" in op else 1)]


def profiled(rank: int, world: int, op: str, later: bool) -> list[Any]:
    from torch.profiler import ProfilerActivity, profile

    with ready_group() as group:
        x = torch.ones(6, 7)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            tensors(OPERATIONS[op](x, group, async_op=later))
    return [(e.name, e.input_shapes) for e in profiler.events() if e.name.startswith("bluefog:")]


INPUTS: dict[str, list[list[int]]] = {
    "neighbor_allreduce": [[6, 7]],
    "neighbor_allreduce of a list": [[6, 7], [6, 7], [1]],
    "neighbor_allgather": [[6, 7]],
    "neighbor_alltoall": [[42], [42]],
    "pair_gossip": [[6, 7]],
    "hierarchical_neighbor_allreduce": [[6, 7]],
}


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("op", OPERATIONS)
def test_profile(pool: harness.Pool, op: str, later: bool) -> None:
    for told in pool.run(profiled, op, later):
        assert told == [(f"bluefog:{op.removesuffix(' of a list')}", INPUTS[op])]


def profiled_allgather(rank: int, world: int, later: bool) -> list[Any]:
    from torch.profiler import ProfilerActivity, profile

    from bluefog_pg import collectives

    x = torch.ones(6, 7)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        tensors(collectives.allgather(x, async_op=later))
    return [(e.name, e.input_shapes) for e in profiler.events() if e.name.startswith("bluefog:")]


@pytest.mark.parametrize("later", [False, True])
def test_profile_of_allgather_has_the_name_that_was_called(pool: harness.Pool, later: bool) -> None:
    assert pool.run(profiled_allgather, later) == [[("bluefog:allgather", [[6, 7]])]] * 4


def leaving(rank: int, world: int) -> list[float]:
    """Rank 1 adds up, frame by frame, what both others send: 0 leaves early, and 2 is stopped."""
    import bluefog_pg

    group = dist.new_group([0, 1, 2])
    large, small = torch.full((50_000,), rank + 1.0), torch.full((3,), rank + 1.0)
    to_one: dict[str, Any] = {"self_weight": 0.0, "src_weights": {}, "dst_weights": [1]}
    take: dict[str, Any] = {"self_weight": 0.0, "dst_weights": [], "async_op": True}
    errors, sums = [], []
    if rank == 0:
        bluefog_pg.neighbor_allreduce(large, **to_one, group=group)
        bluefog_pg.neighbor_allreduce(small, **to_one, name="small", group=group)
    elif rank == 1:
        inrank.gate("go")
        sources = ({0: 1.0, 2: 1.0}, {0: 1.0})
        both = bluefog_pg.neighbor_allreduce(large, src_weights=sources[0], **take, group=group)
        one = bluefog_pg.neighbor_allreduce(
            small, src_weights=sources[1], **take, name="small", group=group
        )
        told = [inrank.catch(work.wait) for work in (one, both)]
        errors = [error.text for error in told if error]
        sums = [w.result()[0][-1].item() for w in (one, both) if w.is_success()]
    elif rank == 2:
        work = bluefog_pg.neighbor_allreduce(large, **to_one, async_op=True, group=group)
        inrank.mark("announced")
        inrank.gate("end")
        work.wait()
    if rank < 3:
        dist.destroy_process_group(group)
    inrank.mark("left")
    assert not errors, errors
    return sums


def test_what_was_sent_arrives_though_its_sender_has_left(pool: harness.Pool) -> None:
    """It arrives also where it lies behind what another operation cannot take yet."""
    pool.run(inrank.barrier)  # This makes sure that there are ranks.
    assert pool.ranks is not None
    pool.ranks.start(leaving, world=4, store=pool.store)
    pool.ranks.at("announced", 2)
    time.sleep(0.2)
    pool.ranks.stop(2)
    pool.ranks.open("go")
    pool.ranks.at("left", 0)
    time.sleep(0.3)
    pool.ranks.cont(2)
    pool.ranks.open("end")
    assert pool.ranks.values(30)[1] == [1.0, 4.0]


def finalized(rank: int, world: int) -> list[float]:
    """Drop tensors whose end averages something: the last one to hold them is a later call."""
    import bluefog_pg

    ends: list[float] = []

    def end() -> None:
        ends.append(bluefog_pg.neighbor_allreduce(torch.ones(2)).sum().item())

    with ready_group():
        for _ in range(3):
            x = torch.ones(3)
            weakref.finalize(x, end)
            bluefog_pg.neighbor_allreduce(x, async_op=True)
            del x
            dist.barrier()
            bluefog_pg.neighbor_allreduce(torch.ones(1))
    return ends


def test_what_an_operation_held_may_average_when_it_goes(pool: harness.Pool) -> None:
    assert pool.run(finalized) == [[2.0] * 3] * 4


def failed(rank: int, world: int) -> list[Any]:
    """Return what rank 0's Work says after it has waited in vain for rank 1."""
    import bluefog_pg

    with ready_group(limit=1) as group:
        bluefog_pg.neighbor_allreduce(torch.full((100,), 7.0), group=group)
        if rank == 1:
            inrank.await_file("at.over.0")
            return []
        work = bluefog_pg.neighbor_allreduce(
            torch.ones(100),
            self_weight=1.0,
            src_weights={1: 1.0},
            dst_weights=[],
            group=group,
            async_op=True,
        )
        told = [inrank.catch(work.wait), inrank.catch(work.result)]
        inrank.mark("over")
        return told


def test_a_failed_work_has_no_result(pool: harness.Pool) -> None:
    told, _ = pool.run(failed, world=2)
    for error in told:
        harness.raised(error, "CollectiveTimeout", ranks=[1])
