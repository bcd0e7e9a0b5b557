"""The builders of topology_util keep their definitions, weights and order, and refuse the rest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluefog_pg import topology_util as tu
from bluefog_pg._core.errors import ArgumentError

SIZES = range(1, 41)
BUILDERS: dict[str, Callable[[int], Any]] = {
    "exp2": tu.ExponentialTwoGraph,
    "exp3": lambda n: tu.ExponentialGraph(n, base=3),
    "symexp": tu.SymmetricExponentialGraph,
    "symexp2": lambda n: tu.SymmetricExponentialGraph(n, base=2),
    "mesh": tu.MeshGrid2DGraph,
    "line": lambda n: tu.MeshGrid2DGraph(n, shape=(n, 1)),
    "star": tu.StarGraph,
    "star at the end": lambda n: tu.StarGraph(n, center_rank=n - 1),
    "ring": tu.RingGraph,
    "ring down": lambda n: tu.RingGraph(n, connect_style=1),
    "ring up": lambda n: tu.RingGraph(n, connect_style=2),
    "full": tu.FullyConnectedGraph,
    "torus": tu.TorusGraph,
    "sparse er": lambda n: tu.ErdosRenyiGraph(n, 0.05, seed=n),
    "dense er": lambda n: tu.ErdosRenyiGraph(n, 0.5),
    "debruijn": tu.DeBruijnGraph,
    "debruijn3": lambda n: tu.DeBruijnGraph(n, base=3),
    "hypercube": lambda n: tu.HypercubeGraph(2 ** (n % 6)),
}


def matrix(graph: Any) -> np.ndarray[Any, Any]:
    """Return the matrix without a nodelist, as the order of insertion is promised, too."""
    return nx.to_numpy_array(graph)


def circulant(size: int, distances: Iterable[int]) -> np.ndarray[Any, Any]:
    row = np.zeros(size)
    for distance in {0, *(d % size for d in distances)}:
        row[distance] = 1
    return np.stack([np.roll(row / row.sum(), rank) for rank in range(size)])


@pytest.mark.parametrize("name", BUILDERS)
def test_every_size_averages(name: str) -> None:
    for size in SIZES:
        graph = BUILDERS[name](size)
        if name != "hypercube":
            assert len(graph) == size
        weights = matrix(graph)
        assert type(graph) is nx.DiGraph
        assert list(graph) == list(range(len(graph)))
        for rank in graph:
            assert list(graph.successors(rank)) == sorted(graph.successors(rank))
            assert list(graph.predecessors(rank)) == sorted(graph.predecessors(rank))
        assert all(type(w) is float and w > 0 for _, _, w in graph.edges(data="weight"))
        np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-12)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)
        assert nx.is_strongly_connected(graph)
        if "debruijn" not in name:
            assert (weights.diagonal() > 0).all()


def powers_below(size: int, base: int) -> list[int]:
    return [d for d in range(1, size) if d in {base**k for k in range(size)}]


def both_ways(size: int, base: int) -> list[int]:
    nearest = {d: d if d <= size // 2 else size - d for d in range(1, size)}
    return [d for d in nearest if nearest[d] in powers_below(size, base)]


CIRCULANTS: dict[str, Callable[[int], Iterable[int]]] = {
    "exp2": lambda n: powers_below(n, 2),
    "exp3": lambda n: powers_below(n, 3),
    "symexp": lambda n: both_ways(n, 4),
    "symexp2": lambda n: both_ways(n, 2),
    "ring": lambda _: [1, -1],
    "ring down": lambda _: [-1],
    "ring up": lambda _: [1],
    "full": range,
}


@pytest.mark.parametrize("name", CIRCULANTS)
def test_circulants_are_what_their_definitions_say(name: str) -> None:
    for size in SIZES:
        want = circulant(size, CIRCULANTS[name](size))
        np.testing.assert_array_equal(matrix(BUILDERS[name](size)), want)


@pytest.mark.parametrize(("base", "power"), [(2, 9), (3, 5), (5, 3), (10, 3)])
def test_no_power_is_lost(base: int, power: int) -> None:
    """A logarithm in floating point would lose 3^5 and 10^3."""
    graph = tu.ExponentialGraph(base**power + 1, base=base)
    assert list(graph[0]) == [0, *(base**k for k in range(power + 1))]


def test_small_and_old() -> None:
    assert tu.PowerTwoRingGraph is tu.ExponentialTwoGraph
    for style in (0, 1, 2):
        np.testing.assert_array_equal(matrix(tu.RingGraph(2, style)), np.full((2, 2), 0.5))
    assert tu.IsTopologyEquivalent(tu.RingGraph(3), tu.ExponentialGraph(3))
    np.testing.assert_array_equal(matrix(tu.RingGraph(np.int64(1))), [[1.0]])
    for size in (2, 3):
        np.testing.assert_allclose(matrix(tu.StarGraph(size)).diagonal()[1:], 1 - 1 / size)


def test_star() -> None:
    for size in SIZES:
        hub = size // 2
        want = np.diag(np.full(size, 1 - 1 / size))
        want[hub, :] = want[:, hub] = 1 / size
        np.testing.assert_allclose(matrix(tu.StarGraph(size, center_rank=hub)), want, atol=1e-15)


def grid(rows: int, columns: int, is_periodic: bool) -> np.ndarray[Any, Any]:
    size = rows * columns
    near = np.zeros((size, size), dtype=bool)
    for rank in range(size):
        row, column = divmod(rank, columns)
        for r, c in ((row + 1, column), (row, column + 1)):
            if is_periodic:
                r, c = r % rows, c % columns
            if r < rows and c < columns and (r, c) != (row, column):
                near[rank, r * columns + c] = near[r * columns + c, rank] = True
    counts = near.sum(axis=1) + 1
    weights = near / np.maximum(counts[:, None], counts[None, :])
    return weights + np.diag(1 - weights.sum(axis=1))


def test_grids() -> None:
    for size in SIZES:
        factors = [(r, size // r) for r in range(1, size + 1) if size % r == 0]
        closest = min((f for f in factors if f[0] <= f[1]), key=lambda f: f[1] - f[0])
        for build, is_periodic in ((tu.MeshGrid2DGraph, False), (tu.TorusGraph, True)):
            for shape in factors:
                got = matrix(build(size, shape=shape))
                np.testing.assert_allclose(got, grid(*shape, is_periodic), atol=1e-15)
            assert tu.IsTopologyEquivalent(build(size), build(size, shape=closest))


def test_uniform_torus() -> None:
    weights = matrix(tu.TorusGraph(12))
    np.testing.assert_allclose(weights[weights > 0], 1 / 5)
    np.testing.assert_allclose(matrix(tu.TorusGraph(7)), matrix(tu.RingGraph(7)))


def test_hypercube() -> None:
    weights = matrix(tu.HypercubeGraph(8))
    for i in range(8):
        for j in range(8):
            assert weights[i, j] == (0.25 if bin(i ^ j).count("1") <= 1 else 0)


@pytest.mark.parametrize(("base", "power"), [(2, 1), (2, 4), (3, 3), (6, 2)])
def test_de_bruijn_averages_exactly(base: int, power: int) -> None:
    size = base**power
    product = np.linalg.matrix_power(matrix(tu.DeBruijnGraph(size, base)), power)
    np.testing.assert_allclose(product, 1 / size, atol=1e-12)


def test_de_bruijn_adds_up_edges_that_coincide() -> None:
    np.testing.assert_array_equal(matrix(tu.DeBruijnGraph(2, base=4)), np.full((2, 2), 0.5))
    want = np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    np.testing.assert_array_equal(matrix(tu.DeBruijnGraph(3)), want)


def test_erdos_renyi() -> None:
    def edges(probability: float, seed: int = 0) -> set[tuple[int, int]]:
        return {e for e in tu.ErdosRenyiGraph(30, probability, seed).edges if e[0] != e[1]}

    assert edges(0.3) == edges(0.3) != edges(0.3, seed=1)
    assert edges(0) == {e for e in tu.RingGraph(30).edges if e[0] != e[1]}
    assert len(edges(1)) == 30 * 29
    assert 0.2 < len(edges(0.3)) / (30 * 29) < 0.4


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))
        )
    )
)
def test_metropolis_hastings(drawn: tuple[int, set[tuple[int, int]]]) -> None:
    size, edges = drawn
    graph = nx.Graph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from(edges, weight=7.0)
    weighted = tu.MetropolisHastingsWeights(graph)
    assert tu.IsTopologyEquivalent(weighted, tu.MetropolisHastingsWeights(graph.to_directed()))
    assert set(weighted.edges) == set(graph.to_directed().edges) | {(r, r) for r in range(size)}
    weights = matrix(weighted)
    np.testing.assert_allclose(weights, weights.T, atol=1e-15)
    np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-12)
    degree = {r: len(set(graph[r]) - {r}) for r in graph}
    for i, j in weighted.edges:
        if i != j:
            assert weights[i, j] == 1 / (1 + max(degree[i], degree[j]))


def test_metropolis_hastings_keeps_nodes_and_refuses_one_way_edges() -> None:
    assert list(tu.MetropolisHastingsWeights(nx.path_graph("cab"))) == ["c", "a", "b"]
    with pytest.raises(ValueError, match="0 -> 1, and not 1 -> 0"):
        tu.MetropolisHastingsWeights(nx.DiGraph([(0, 1)]))
    with pytest.raises(TypeError, match="not list"):
        tu.MetropolisHastingsWeights([[1.0]])


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "style": (lambda: tu.RingGraph(4, 3), ArgumentError, "0, 1 or 2, got 3"),
    "shape": (lambda: tu.MeshGrid2DGraph(6, (2, 2)), ArgumentError, r"6, got \(2, 2\)"),
    "no shape": (lambda: tu.TorusGraph(4, (-2, -2)), ArgumentError, "shape must be"),
    "a long shape": (lambda: tu.TorusGraph(4, (2, 2, 1)), ArgumentError, "shape must be"),
    "hub": (lambda: tu.StarGraph(4, 4), ArgumentError, "ranks 0 to 3, got 4"),
    "base 1": (lambda: tu.ExponentialGraph(4, 1), ArgumentError, "at least 2, got 1"),
    "base 2.0": (lambda: tu.SymmetricExponentialGraph(4, 2.0), ArgumentError, "integer"),
    "de Bruijn base": (lambda: tu.DeBruijnGraph(4, 1), ArgumentError, "at least 2"),
    "cube of 6": (lambda: tu.HypercubeGraph(6), ValueError, "power of two, got 6"),
    "probability": (lambda: tu.ErdosRenyiGraph(4, 1.5), ValueError, "0 to 1, got 1.5"),
    "seed": (lambda: tu.ErdosRenyiGraph(4, 0.5, None), TypeError, "seed must be an integer"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    call, kind, text = REFUSED[what]
    with pytest.raises(kind, match=text):
        call()


SIZED = [n for n in BUILDERS if n not in ("hypercube", "line", "star at the end")]


@pytest.mark.parametrize("name", SIZED)
def test_sizes_refused(name: str) -> None:
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        BUILDERS[name](0)
    with pytest.raises(TypeError, match=r"size must be an integer, not 2\.5"):
        BUILDERS[name](2.5)


def test_an_argument_error_is_both() -> None:
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(ArgumentError, AssertionError)


@pytest.mark.slow
def test_the_import_is_cheap() -> None:
    """Every `import torch` of the environment could pay for a heavy import."""
    heavy = "{'networkx', 'matplotlib', 'scipy'}"
    code = f"import sys, bluefog_pg.topology_util as t; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert sorted(tu.__all__) == sorted(set(tu.__all__))
    assert all(hasattr(tu, name) for name in tu.__all__)
