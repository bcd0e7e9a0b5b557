"""All ranks agree on every step of a schedule, and those that promise the exact mean reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import islice
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bluefog_pg import topology_util as tu
from bluefog_pg._core.errors import ArgumentError

Step = tuple[list[int], list[int]]


def agreed(parts: list[Iterator[Step]], steps: int) -> list[list[list[int]]]:
    """Return whom each rank sends to in each step, checked against those who say they receive."""
    told = []
    for step in zip(*(islice(part, steps) for part in parts), strict=True):
        sends = [send for send, _ in step]
        for rank, (_, receive) in enumerate(step):
            assert receive == [other for other in range(len(step)) if rank in sends[other]]
        told.append(sends)
    assert len(told) == steps
    return told


def one_peer(graph: Any) -> list[Iterator[Step]]:
    return [tu.GetDynamicOnePeerSendRecvRanks(graph, rank) for rank in range(len(graph))]


GRAPHS: dict[str, Callable[[int], Any]] = {
    "exp2": tu.ExponentialTwoGraph,
    "ring": tu.RingGraph,
    "star": tu.StarGraph,
    "mesh": tu.MeshGrid2DGraph,
    "full": tu.FullyConnectedGraph,
    "de Bruijn": tu.DeBruijnGraph,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_one_peer_of_any_graph(name: str) -> None:
    for size in range(1, 25):
        graph = GRAPHS[name](size)
        for step, sends in enumerate(agreed(one_peer(graph), 8)):
            for rank, send in enumerate(sends):
                clockwise = [(rank + d) % size for d in range(1, size)]
                near = [other for other in clockwise if graph.has_edge(rank, other)]
                assert send == ([near[step % len(near)]] if near else [])


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))
        )
    )
)
def test_one_peer_of_irregular_graphs_with_or_without_self_loops(
    drawn: tuple[int, set[tuple[int, int]]],
) -> None:
    size, edges = drawn
    graph = nx.DiGraph()
    graph.add_nodes_from(reversed(range(size)))
    graph.add_edges_from(edges)
    told = agreed(one_peer(graph), 12)
    assert all(graph.has_edge(r, s) for sends in told for r, send in enumerate(sends) for s in send)


def test_one_peer_old_name_and_refusals() -> None:
    assert tu.GetDynamicSendRecvRanks is tu.GetDynamicOnePeerSendRecvRanks
    with pytest.raises(ArgumentError, match="self_rank must be one of the ranks 0 to 3, got 4"):
        tu.GetDynamicOnePeerSendRecvRanks(tu.RingGraph(4), 4)
    with pytest.raises(TypeError, match=r"networkx\.DiGraph, not Graph"):
        tu.GetDynamicOnePeerSendRecvRanks(nx.path_graph(3), 0)
    with pytest.raises(TypeError, match=r"0 to n-1; these are \[1, 2\]"):
        tu.GetDynamicOnePeerSendRecvRanks(nx.DiGraph([(1, 2)]), 1)


@pytest.mark.parametrize("local", range(3, 8))
@pytest.mark.parametrize("machines", [1, 2, 3, 4, 6, 9])
def test_inner_outer(machines: int, local: int) -> None:
    world = machines * local
    rings = agreed(
        [tu.GetInnerOuterRingDynamicSendRecvRanks(world, local, r) for r in range(world)], 30
    )
    exp2s = agreed(
        [tu.GetInnerOuterExpo2DynamicSendRecvRanks(world, local, r) for r in range(world)], 30
    )
    for step in range(30):
        out = step % local
        near = {"ring": (rings, 1, 1)}
        inside = 2 ** (step % max(1, int(np.log2(local - 2)) + 1))
        outside = 2 ** (step % (int(np.log2(machines - 1)) + 1)) if machines > 1 else 0
        near["exp2"] = (exp2s, inside, outside)
        for told, hop_in, hop_out in near.values():
            for rank in range(world):
                machine, mine = divmod(rank, local)
                if mine == out:
                    want = [(rank + hop_out * local) % world] if machines > 1 else []
                else:
                    stay = [machine * local + i for i in range(local) if i != out]
                    want = [stay[(stay.index(rank) + hop_in) % len(stay)]]
                assert told[step][rank] == want


@pytest.mark.parametrize("local", [1, 2, 4])
def test_exp2_between_machines(local: int) -> None:
    for machines in range(2, 18):
        parts = [
            tu.GetExp2DynamicSendRecvMachineRanks(
                machines * local, local, m * local + m % local, m % local
            )
            for m in range(machines)
        ]
        distances = [d for d in (1, 2, 4, 8, 16) if d < machines]
        for step, sends in enumerate(agreed(parts, 9)):
            distance = distances[step % len(distances)]
            assert sends == [[(m + distance) % machines] for m in range(machines)]


REFUSED = {
    "local_rank": (lambda: tu.GetExp2DynamicSendRecvMachineRanks(8, 4, 5, 2), "local_rank"),
    "remainder": (lambda: tu.GetExp2DynamicSendRecvMachineRanks(9, 4, 5, 1), "multiple"),
    "one machine": (lambda: tu.GetExp2DynamicSendRecvMachineRanks(4, 4, 1, 1), "at least two"),
    "ring of two": (lambda: tu.GetInnerOuterRingDynamicSendRecvRanks(8, 2, 0), "at least 3"),
    "ring, uneven": (lambda: tu.GetInnerOuterRingDynamicSendRecvRanks(8, 3, 0), "multiple"),
    "exp2 of two": (lambda: tu.GetInnerOuterExpo2DynamicSendRecvRanks(8, 2, 0), "at least 3"),
    "stranger": (lambda: tu.GetInnerOuterExpo2DynamicSendRecvRanks(8, 4, 8), "0 to 7, got 8"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_at_once_and_not_at_the_first_step(what: str) -> None:
    call, text = REFUSED[what]
    with pytest.raises(ArgumentError, match=text):
        call()


def round_of(graphs: list[Any]) -> Any:
    for graph in graphs:
        assert tu.is_doubly_stochastic(graph, tolerance=1e-12)
        assert all(graph.has_edge(r, r) for r in graph)
    return reduce(np.matmul, [nx.to_numpy_array(graph) for graph in graphs])


@pytest.mark.parametrize("base", [2, 3, 4, 7])
def test_base_k_averages_exactly(base: int) -> None:
    for size in range(1, 41):
        graphs = tu.BaseKGraphs(size, base)
        np.testing.assert_allclose(round_of(graphs), 1 / size, rtol=0, atol=1e-12)
        for graph in graphs:
            assert list(graph) == list(range(size))
            assert max(len(set(graph[r]) - {r}) for r in graph) <= base - 1
            assert all(graph[i][j]["weight"] == graph[j][i]["weight"] for i, j in graph.edges)
        assert 1 <= len(graphs) <= 2 * np.log(size) / np.log(base) + 2


def test_base_k_is_as_short_as_in_the_paper() -> None:
    """Powers take log steps, 5 takes 5, and 6 is better split into 2 x 3 (NeurIPS 2023)."""
    assert [len(tu.BaseKGraphs(n)) for n in (2, 3, 4, 5, 6, 7, 8, 11)] == [1, 3, 2, 5, 4, 5, 3, 7]
    assert [len(tu.BaseKGraphs(n, 3)) for n in (3, 4, 6, 9, 27)] == [1, 2, 2, 2, 3]
    assert len(tu.BaseKGraphs(40, 40)) == 1
    with pytest.raises(ArgumentError, match="base must be an integer of at least 2, got 1"):
        tu.BaseKGraphs(4, 1)


def test_base_k_of_many() -> None:
    for size, base in ((360, 2), (499, 2), (625, 3)):
        np.testing.assert_allclose(round_of(tu.BaseKGraphs(size, base)), 1 / size, atol=1e-12)


@pytest.mark.parametrize("power", range(6))
def test_one_peer_exp2_is_exact_for_powers_of_two_from_any_step(power: int) -> None:
    graphs = tu.OnePeerExponentialTwoGraphs(2**power)
    assert len(graphs) == max(1, power)
    for first in range(len(graphs)):
        product = round_of(graphs[first:] + graphs[:first])
        np.testing.assert_allclose(product, 1 / 2**power, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [3, 5, 6, 12, 33])
def test_one_peer_exp2_of_other_sizes(size: int) -> None:
    graphs = tu.OnePeerExponentialTwoGraphs(size)
    steps = [
        sends for sends, _ in islice(tu.GetDynamicSendRecvRanks(tu.ExponentialTwoGraph(size), 0), 9)
    ]
    for step, sends in enumerate(steps):
        own, others = tu.GetSendWeights(graphs[step % len(graphs)], 0)
        assert (own, others) == (0.5, dict.fromkeys(sends, 0.5))
    assert abs(round_of(graphs) - 1 / size).max() > 0.01


@settings(max_examples=30)
@given(st.integers(1, 30), st.integers(2, 5), st.integers(0, 2**32))
def test_what_each_rank_does_with_a_step(size: int, base: int, seed: int) -> None:
    """Ranks use their column of the step's graph, and nothing else."""
    x = np.random.default_rng(seed).standard_normal(size)
    want = np.full(size, x.mean())
    for graph in tu.BaseKGraphs(size, base):
        received = x.copy()
        for rank in range(size):
            own, sources = tu.GetRecvWeights(graph, rank)
            received[rank] = own * x[rank] + sum(w * x[s] for s, w in sources.items())
            assert all(rank in tu.GetSendWeights(graph, s)[1] for s in sources)
        x = received
    np.testing.assert_allclose(x, want, rtol=0, atol=1e-12)
