"""Topologies average as fast as closed forms, mixing times and simulations say."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluefog_pg import topology_util as tu
from bluefog_pg._core.errors import ArgumentError


def test_closed_forms() -> None:
    for size in range(2, 41):
        gap = tu.spectral_gap
        assert gap(tu.FullyConnectedGraph(size)) == pytest.approx(1)
        ring = 1 - (1 + 2 * math.cos(2 * math.pi / size)) / 3
        assert gap(tu.RingGraph(size)) == pytest.approx(ring if size > 2 else 1)
        assert gap(tu.RingGraph(size, 2)) == pytest.approx(1 - math.cos(math.pi / size))
        assert gap(tu.StarGraph(size)) == pytest.approx(1 / size if size > 2 else 1)
        if size % 2 == 0:  # The closed form is that of Ying et al., NeurIPS 2021.
            want = 2 / (2 + math.floor(math.log2(size - 1)))
            assert gap(tu.ExponentialTwoGraph(size)) == pytest.approx(want)
        for graph in (tu.MeshGrid2DGraph(size), tu.DeBruijnGraph(size)):
            second = np.linalg.svd(nx.to_numpy_array(graph), compute_uv=False)[1]
            assert tu.second_singular_value(graph) == pytest.approx(second, abs=1e-12)
            assert gap(graph) == pytest.approx(1 - second, abs=1e-12)


def test_more_closed_forms() -> None:
    for bits in range(1, 7):
        assert tu.spectral_gap(tu.HypercubeGraph(2**bits)) == pytest.approx(2 / (bits + 1))
    assert tu.spectral_gap(tu.MeshGrid2DGraph(16)) == pytest.approx(1 - 0.8686, abs=1e-4)
    assert tu.spectral_gap(tu.RingGraph(1)) == 1
    assert tu.spectral_gap(tu.DeBruijnGraph(8)) == pytest.approx(0, abs=1e-12)


def brute_force(graph: Any, tolerance: float) -> int:
    weights, power, steps = nx.to_numpy_array(graph), np.eye(len(graph)), 0
    while np.linalg.norm(power - 1 / len(graph), 2) > tolerance:
        power, steps = power @ weights, steps + 1
    return steps


@pytest.mark.parametrize("tolerance", [0.5, 1e-3, 1e-6])
def test_mixing_time(tolerance: float) -> None:
    graphs = [tu.RingGraph(n) for n in (1, 2, 3, 5, 8, 13)]
    graphs += [tu.ExponentialTwoGraph(n) for n in (6, 16, 21)]
    graphs += [tu.StarGraph(9), tu.DeBruijnGraph(16), tu.DeBruijnGraph(11), tu.RingGraph(7, 1)]
    for graph in graphs:
        assert tu.mixing_time(graph, tolerance) == brute_force(graph, tolerance)


def test_who_never_meets() -> None:
    apart = tu.MetropolisHastingsWeights(nx.Graph([(0, 1), (2, 3), (3, 4), (2, 4)]))
    swap = nx.DiGraph([(0, 1), (1, 0)])
    for graph in (apart, swap):
        assert tu.is_doubly_stochastic(graph)
        assert tu.spectral_gap(graph) == pytest.approx(0, abs=1e-12)
        assert tu.mixing_time(graph) == math.inf
    with pytest.raises(ValueError, match="tolerance must be positive, got 0"):
        tu.mixing_time(swap, 0)


def test_doubly_stochastic_or_not() -> None:
    star = tu.StarGraph(5)
    uniform = nx.DiGraph()  # set_topology makes this of the star without is_weighted.
    for i, j in star.edges:
        uniform.add_edge(i, j, weight=1 / star.in_degree(j))
    negative = nx.DiGraph()
    negative.add_weighted_edges_from([(0, 0, 1.5), (1, 1, 1.5), (0, 1, -0.5), (1, 0, -0.5)])
    off = tu.RingGraph(4)
    off[0][1]["weight"] += 1e-6
    for graph in (uniform, uniform.reverse(), negative, off):
        assert not tu.is_doubly_stochastic(graph)
        for ask in (tu.spectral_gap, tu.mixing_time, tu.second_singular_value):
            with pytest.raises(ValueError, match="doubly stochastic"):
                ask(graph)
    assert tu.is_doubly_stochastic(off, tolerance=1e-5)
    assert tu.simulate_consensus(star, 5, 400)[-1] < 1e-12
    assert tu.simulate_consensus(uniform, 5, 400)[-1] > 1e-3, "it does not reach the mean"


def test_simulated() -> None:
    distances = tu.simulate_consensus(tu.RingGraph, 10, 40, seed=3)
    x = np.random.default_rng(3).standard_normal(10)
    mean, weights = x.mean(), nx.to_numpy_array(tu.RingGraph(10))
    assert distances.shape == (41,)
    for distance in distances:
        assert distance == pytest.approx(np.sqrt(((x - mean) ** 2).mean()), abs=1e-14)
        x = weights.T @ x
    rho = tu.second_singular_value(tu.RingGraph(10))
    assert (distances[1:] <= rho * distances[:-1] * (1 + 1e-9)).all()
    assert (distances == tu.simulate_consensus(tu.RingGraph(10), 10, 40, seed=3)).all()
    assert (distances != tu.simulate_consensus(tu.RingGraph(10), 10, 40, seed=4)).any()


def test_simulated_directions_and_rounds() -> None:
    """Rank j averages with column j, so a rank that only sends keeps what it has."""
    speaker = nx.DiGraph()
    speaker.add_weighted_edges_from([(0, 0, 1.0), (0, 1, 1.0)])
    before, after = tu.simulate_consensus(speaker, 2, 1)
    # Both have rank 0's value, which is as far from the mean.
    assert after == pytest.approx(before)
    exact = tu.simulate_consensus(tu.BaseKGraphs, 7, 12)
    assert (exact[len(tu.BaseKGraphs(7)) :] < 1e-12).all() and exact[1] > 1e-3
    assert (exact == tu.simulate_consensus(tu.BaseKGraphs(7), 7, 12)).all()
    with pytest.raises(ValueError, match="n = 5 ranks, got one of 7"):
        tu.simulate_consensus(tu.RingGraph(7), 5, 1)
    with pytest.raises(ValueError, match="at least one graph"):
        tu.simulate_consensus([], 5, 1)
    with pytest.raises(ValueError, match="steps must not be negative, got -1"):
        tu.simulate_consensus(tu.RingGraph, 5, -1)


weighted_digraphs = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.permutations(range(n)),
        st.dictionaries(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), st.floats(-2, 2), max_size=30
        ),
    )
)


@given(weighted_digraphs)
def test_weights_of_one_rank_are_the_dense_matrix(drawn: Any) -> None:
    nodes, edges = drawn
    graph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_weighted_edges_from((i, j, w) for (i, j), w in edges.items())
    dense = nx.to_numpy_array(graph, nodelist=range(len(nodes)))
    for rank in nodes:
        for get, line, near in (
            (tu.GetRecvWeights, dense[:, rank], graph.predecessors),
            (tu.GetSendWeights, dense[rank], graph.successors),
        ):
            own, others = get(graph, rank)
            assert own == line[rank]
            assert list(others) == sorted(set(near(rank)) - {rank})
            assert all(line[other] == weight for other, weight in others.items())


def test_weights_that_are_absent_or_refused() -> None:
    graph = nx.DiGraph([(0, 1), (2, 1)])
    assert tu.GetRecvWeights(graph, np.int64(1)) == (0.0, {0: 1.0, 2: 1.0})
    assert tu.GetSendWeights(graph, 1) == (0.0, {})
    for get in (tu.GetRecvWeights, tu.GetSendWeights):
        with pytest.raises(ArgumentError, match="rank must be one of the ranks 0 to 2, got 3"):
            get(graph, 3)
        with pytest.raises(TypeError, match="rank must be an integer, not 'a'"):
            get(graph, "a")


def test_equivalent() -> None:
    ring, other = tu.RingGraph(5), nx.DiGraph()
    other.add_nodes_from([3, 1, 0, 4, 2])
    other.add_weighted_edges_from(reversed(list(ring.edges(data="weight"))))
    assert tu.IsTopologyEquivalent(ring, other)
    other[0][1]["weight"] = 0.25
    assert not tu.IsTopologyEquivalent(ring, other)
    assert not tu.IsTopologyEquivalent(ring, tu.RingGraph(6))
    assert not tu.IsTopologyEquivalent(tu.RingGraph(5, 1), tu.RingGraph(5, 2))
    assert not tu.IsTopologyEquivalent(None, ring)
    assert not tu.IsTopologyEquivalent(ring, None)
    assert not tu.IsTopologyEquivalent(None, None)
    assert tu.IsTopologyEquivalent(nx.DiGraph([(0, 1)]), nx.DiGraph([(0, 1, {"weight": 1.0})]))


def test_regular() -> None:
    assert all(tu.IsRegularGraph(b(n)) for n in (1, 2, 7) for b in (tu.RingGraph, tu.TorusGraph))
    assert not tu.IsRegularGraph(tu.StarGraph(3))
    assert not tu.IsRegularGraph(tu.MeshGrid2DGraph(6))


@given(st.integers(2, 50), st.integers(0, 60), st.integers(-2, 2))
def test_powers(base: int, exponent: int, off: int) -> None:
    x = base**exponent + off
    if x > 0:
        assert tu.isPowerOf(x, base) == (x in {base**k for k in range(exponent + 2)})


def test_powers_refused() -> None:
    for x, base in ((4, 1), (4, 2.0), (4, "2"), (0, 2), (-4, 2)):
        with pytest.raises(ArgumentError):
            tu.isPowerOf(x, base)
    with pytest.raises(TypeError, match=r"x must be an integer, not 4\.5"):
        tu.isPowerOf(4.5, 2)


def test_equivalent_is_of_weight_matrices_where_an_edge_of_weight_0_is_none() -> None:
    ring = tu.RingGraph(4, 2)
    wider = ring.copy()
    wider.add_edge(0, 2, weight=0.0)
    assert tu.IsTopologyEquivalent(ring, wider)
    assert tu.IsTopologyEquivalent(wider, ring)
    wider.add_edge(0, 2, weight=0.1)
    assert not tu.IsTopologyEquivalent(ring, wider)
    assert not tu.IsTopologyEquivalent(ring, tu.RingGraph(5, 2))
