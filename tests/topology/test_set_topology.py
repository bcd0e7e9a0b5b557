"""set_topology and load_topology have defaults, weights and order, and refuse the rest."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank


def neighbors() -> list[list[int]]:
    import bluefog_pg

    return [list(bluefog_pg.in_neighbor_ranks()), list(bluefog_pg.out_neighbor_ranks())]


def default(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    before = neighbors()
    matrix = nx.to_numpy_array(bluefog_pg.load_topology(), nodelist=range(world))
    answer = bluefog_pg.set_topology()
    return [before, neighbors(), answer, matrix.round(6).tolist()]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_default(world: int) -> None:
    """The ranks are fresh, as kept ones may have the topology of a test before."""
    hops = {1: [], 2: [1], 3: [1, 2], 4: [1, 2]}[world]
    share = round(1 / (len(hops) + 1), 6)
    for rank, (before, after, answer, matrix) in enumerate(harness.run_ranks(default, world)):
        ins = sorted((rank - h) % world for h in hops)
        outs = sorted((rank + h) % world for h in hops)
        assert before == after == [ins, outs]
        assert answer is True
        assert [j for j in range(world) if matrix[rank][j]] == sorted({rank, *outs})
        assert {w for row in matrix for w in row if w} == {share}


def unordered(rank: int, world: int) -> list[Any]:
    """Nodes and edges may be inserted in any order, and a self-loop is no neighbor."""
    import bluefog_pg

    g = nx.DiGraph()
    g.add_nodes_from([3, 1, 0, 2])
    g.add_edges_from([(3, 0), (2, 0), (1, 0), (0, 0), (0, 3), (0, 2), (0, 1)])
    answer = bluefog_pg.set_topology(g)
    loaded = bluefog_pg.load_topology()
    return [answer, neighbors(), set(loaded.nodes) == set(g.nodes), set(loaded.edges) >= set()]


def test_neighbors_ascend(pool: harness.Pool) -> None:
    told = pool.run(unordered)
    assert told[0][:2] == [True, [[1, 2, 3], [1, 2, 3]]]
    assert [t[1] for t in told[1:]] == [[[0], [0]]] * 3


def weighted(rank: int, world: int) -> list[float]:
    """Rank j multiplies with column j of the matrix, which is ignored without is_weighted."""
    import bluefog_pg

    g = nx.DiGraph()
    g.add_nodes_from(range(world))
    g.add_weighted_edges_from([(0, 1, 0.25), (1, 1, 0.5), (2, 1, -1.0), (3, 3, 2.0), (1, 2, 3.0)])
    got = []
    # The same graph with the other flag is another topology.
    for flag in (True, False, True):
        assert bluefog_pg.set_topology(g, is_weighted=flag)
        got.append(bluefog_pg.neighbor_allreduce(torch.tensor([rank + 1.0])).item())
    return got


def test_weighted_or_not(pool: harness.Pool) -> None:
    want = [[0, 1, 0], [0.25 + 1 - 3, 2, -1.75], [6, 2.5, 6], [8, 4, 8]]
    assert pool.run(weighted) == [pytest.approx(w) for w in want]


def loaded(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    ring = nx.DiGraph([(i, (i + 1) % world) for i in range(world)])
    bluefog_pg.set_topology(ring)
    first = sorted(bluefog_pg.load_topology().edges) == sorted(ring.edges)
    ring.add_edge(0, 2)  # The caller's graph stays the caller's own: what counts was set before.
    x = bluefog_pg.neighbor_allreduce(torch.tensor([float(rank)])).item()
    bluefog_pg.set_topology(None)
    return [first, x, neighbors()[0]]


def test_set_load_and_back_to_the_default(pool: harness.Pool) -> None:
    told = pool.run(loaded)
    assert [t[:2] for t in told] == [[True, (r + (r - 1) % 4) / 2] for r in range(4)]
    assert [t[2] for t in told] == [[2, 3], [0, 3], [0, 1], [1, 2]]


def refused(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    square = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0)])
    bluefog_pg.set_topology(square)
    named = nx.relabel_nodes(square, dict(enumerate("abcd")))
    shifted = nx.relabel_nodes(square, {i: i + 1 for i in range(4)})
    infinite = nx.DiGraph(square)
    infinite[0][1]["weight"] = float("inf")
    nan = nx.DiGraph(square)
    nan[0][1]["weight"] = float("nan")
    bad = {
        "a matrix": ([[0, 1], [1, 0]], False),
        "a Graph": (nx.Graph([(0, 1), (1, 2), (2, 3)]), False),
        "parallel edges": (nx.MultiDiGraph(square), False),
        "three nodes": (nx.DiGraph([(0, 1), (1, 2)]), False),
        "five nodes": (nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4)]), False),
        "names": (named, False),
        "ranks from 1": (shifted, False),
        "NaN": (nan, True),
        "infinity": (infinite, True),
    }
    errors = {k: inrank.catch(bluefog_pg.set_topology, g, w) for k, (g, w) in bad.items()}
    kept = sorted(bluefog_pg.load_topology().edges) == sorted(square.edges)
    x = bluefog_pg.neighbor_allreduce(torch.tensor([float(rank)])).item()
    return [errors, kept, x]


def test_refused_topologies_change_nothing(pool: harness.Pool) -> None:
    for rank, (errors, kept, x) in enumerate(pool.run(refused)):
        for what, error in errors.items():
            assert error is not None, f"{what} was accepted"
            types = (
                ["TypeError"] if what in ("a matrix", "a Graph") else ["TypeError", "ValueError"]
            )
            if what.endswith("nodes"):
                types = ["TypeError"]
            assert set(types) & set(error.kinds), f"{what}: {error.kind}: {error.text}"
        assert "not among them: [4]" in errors["five nodes"].text
        assert kept and x == (rank + (rank - 1) % 4) / 2


def without_a_group(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    calls = {
        "set_topology": lambda: bluefog_pg.set_topology(),
        "load_topology": lambda: bluefog_pg.load_topology(),
        "in_neighbor_ranks": lambda: bluefog_pg.in_neighbor_ranks(),
        "neighbor_allreduce": lambda: bluefog_pg.neighbor_allreduce(torch.ones(1)),
    }
    dist.destroy_process_group()
    errors = {name: inrank.catch(call) for name, call in calls.items()}
    inrank.init("again", rank, world)
    # A topology belongs to its group, so a new one starts with the default.
    return [errors, neighbors()]


def test_before_init_and_after_destroy(pool: harness.Pool) -> None:
    for errors, near in pool.run(without_a_group, world=2):
        for name, error in errors.items():
            assert error is not None, f"{name} needs no group?"
            assert {"ValueError", "RuntimeError"} & set(error.kinds), error
        assert near == [[1], [1]] or near == [[0], [0]]
