"""Ranks, sizes and machines are right, machines have topologies, and init works by itself."""

from __future__ import annotations

import os
from typing import Any
from unittest import mock

import networkx as nx
import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.operations import MACHINE_SIZE, answers, group_of_machines, place_by_host

RANKS = 5


def of_machines(rank: int, world: int, each: int) -> list[Any]:
    with group_of_machines(each) as group:
        return answers(group)


@pytest.mark.parametrize(("world", "each"), [(4, 2), (4, 1), (4, 4), (5, 5), (1, 1)])
def test_blocks(pool: harness.Pool, world: int, each: int) -> None:
    for rank, told in enumerate(pool.run(of_machines, each, world=world)):
        place = [rank % each, each, rank // each, world // each]
        assert told == [rank, world, *place, True]


def of_hosts(rank: int, world: int) -> list[Any]:
    """All ranks of these tests are on one host; a group has its own numbers."""
    world_group, pair = dist.new_group(), dist.new_group([1, 4])
    told = [answers(world_group), answers(pair) if rank in (1, 4) else []]
    for group in (world_group, pair):
        if rank in (1, 4) or group is world_group:
            dist.barrier(group)
            dist.destroy_process_group(group)
    return told


def test_one_host_is_one_machine(pool: harness.Pool) -> None:
    for rank, (told, pair) in enumerate(pool.run(of_hosts)):
        assert told == [rank, 5, *place_by_host(rank, 5), True]
        place = [1, 4].index(rank) if pair else 0
        assert pair in ([], [place, 2, *place_by_host(place, 2), True])


def uneven(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    with group_of_machines(2) as group:
        sizes = [f(group) for f in (bluefog_pg.local_rank, bluefog_pg.local_size)]
        refused = {
            "machine_rank": lambda: bluefog_pg.machine_rank(group),
            "machine_size": lambda: bluefog_pg.machine_size(group),
            "set_machine_topology": lambda: bluefog_pg.set_machine_topology(
                nx.complete_graph(3, nx.DiGraph), group=group
            ),
            "hierarchical_neighbor_allreduce": lambda: bluefog_pg.hierarchical_neighbor_allreduce(
                torch.ones(3), group=group
            ),
        }
        errors = {name: inrank.catch(call) for name, call in refused.items()}
        return [sizes, bluefog_pg.is_homogeneous(group), errors]


def test_five_ranks_in_blocks_of_two(pool: harness.Pool) -> None:
    for rank, (sizes, alike, errors) in enumerate(pool.run(uneven, world=5)):
        assert sizes == [rank % 2, 1 if rank == 4 else 2]
        assert alike is False
        for name, error in errors.items():
            text = harness.raised(error, "ArgumentError", text=name).text
            assert {"AssertionError", "ValueError"} <= set(error.kinds)
            assert f"rank {rank} ({rank}/5 of group" in text


def odd_sizes(rank: int, world: int) -> list[Any]:
    """Set machine sizes that are no numbers, and one that is larger than the group."""
    told: list[Any] = []
    for given in ("two", "0", "-2", "1.5", "99", ""):
        group = dist.new_group()
        with mock.patch.dict(os.environ, {MACHINE_SIZE: given}):
            answer: list[Any] = []
            error = inrank.catch(lambda: answer.append(answers(group)))  # noqa: B023
            told.append(error or answer[0])
        dist.barrier(group)
        dist.destroy_process_group(group)
    return told


def test_sizes_of_machines_that_are_none(pool: harness.Pool) -> None:
    for rank, (*errors, large, unset) in enumerate(pool.run(odd_sizes)):
        for error in errors:
            harness.raised(error, "ArgumentError", text=MACHINE_SIZE)
        assert large == [rank, 5, rank, 5, 0, 1, True]
        assert unset == [rank, 5, *place_by_host(rank, 5), True]


def topologies(rank: int, world: int) -> list[Any]:
    """Return what set_machine_topology takes and refuses, and what is read back."""
    import bluefog_pg

    def near(group: Any) -> list[Any]:
        loaded = bluefog_pg.load_machine_topology(group)
        return [
            loaded and sorted(loaded.edges),
            bluefog_pg.in_neighbor_machine_ranks(group),
            bluefog_pg.out_neighbor_machine_ranks(group),
            bluefog_pg.is_machine_topo_weighted(group),
        ]

    with group_of_machines(1) as group:
        told = [near(group)]
        graph = nx.DiGraph([(0, 1), (0, 2), (2, 0), (1, 1)])
        told.append(bluefog_pg.set_machine_topology(graph, group=group))
        told.append(near(group))
        told.append(bluefog_pg.set_machine_topology(graph, True, group))  # The flag counts.
        graph.add_edge(1, 2)  # The caller's graph stays the caller's own.
        bluefog_pg.load_machine_topology(group).add_edge(1, 0)
        nan = nx.DiGraph(nx.complete_graph(3, nx.DiGraph))
        nan[0][1]["weight"] = float("nan")
        bad = {
            "None": (None,),
            "a matrix": ([[1]],),
            "a Graph": (nx.path_graph(3),),
            "of six": (nx.complete_graph(6, nx.DiGraph),),
            "of two": (nx.complete_graph(2, nx.DiGraph),),
            "from 1": (nx.DiGraph([(1, 2), (2, 3)]),),
            "NaN": (nan, True),
        }
        set_it = bluefog_pg.set_machine_topology
        errors = {name: inrank.catch(set_it, *args, group=group) for name, args in bad.items()}
        return [*told, errors, near(group), bluefog_pg.in_neighbor_ranks(group)]


def test_topologies_of_machines(pool: harness.Pool) -> None:
    edges = [(0, 1), (0, 2), (1, 1), (2, 0)]
    ins, outs = {0: [2], 1: [0], 2: [0]}, {0: [1, 2], 1: [], 2: [0]}
    for rank, told in enumerate(pool.run(topologies, world=3)):
        unset, first, plain, second, errors, weighted, near = told
        assert unset == [None, [], [], False]
        assert first is second is True
        assert plain == [edges, ins[rank], outs[rank], False]
        assert weighted == [edges, ins[rank], outs[rank], True]
        assert near == sorted({0, 1, 2} - {rank})  # The ranks have another topology.
        for name, error in errors.items():
            kind = "ValueError" if name in ("None", "NaN") else "TypeError"
            harness.raised(error, kind, text="set_machine_topology")


def lonely(rank: int, world: int) -> list[Any]:
    """Call init and shutdown as if nothing had started this process."""
    import bluefog_pg

    dist.destroy_process_group()

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: os.environ.pop(name) for name in names}
    try:
        bluefog_pg.init()
        x = bluefog_pg.neighbor_allreduce(torch.full((2,), float(rank)))
        told = [answers(), x.tolist(), bluefog_pg.in_neighbor_ranks()]
        bluefog_pg.shutdown()
    finally:
        os.environ.update(kept)
        inrank.init("after all", rank, world)
    return told


def test_a_process_that_nothing_has_started(pool: harness.Pool) -> None:
    for rank, told in enumerate(pool.run(lonely, world=2)):
        assert told == [[0, 1, 0, 1, 0, 1, True], [rank] * 2, []]


def of_another(rank: int, world: int) -> inrank.Raised | None:
    import bluefog_pg

    dist.destroy_process_group()
    path = inrank.directory() / "gloo"
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    error = inrank.catch(bluefog_pg.init)
    dist.barrier()
    dist.destroy_process_group()
    inrank.init("instead", rank, world)
    return error


def test_init_beside_another_backend(pool: harness.Pool) -> None:
    for error in pool.run(of_another, world=2):
        harness.raised(error, "TypeError", text="gloo")
