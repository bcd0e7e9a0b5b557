"""This module builds weighted digraphs: the well-known graphs, of any number of ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.errors import ArgumentError
from bluefog_pg._core.renamed import renamed
from bluefog_pg.topology.graphs.arguments import (
    base_above_one,
    integer,
    positive,
    rank_below,
    real,
    require_edges,
)
from bluefog_pg.topology.graphs.digraph import circulant, digraph
from bluefog_pg.topology.graphs.metropolis import MetropolisHastingsWeights
from bluefog_pg.topology.graphs.weights import isPowerOf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import networkx as nx


def ExponentialTwoGraph(size: int) -> nx.DiGraph[int]:
    """Return the graph in which rank i sends to i + 1, i + 2, i + 4, ... (mod `size`).

    The weights are uniform. The spectral gap shrinks only with log(size): ||W - 11^T/n|| = 1 - 2 /
    (2 + floor(log2(n - 1))) for even n (Ying et al., "Exponential Graph is Provably Efficient for
    Decentralized Deep Training", NeurIPS 2021). This is the default topology of a group, and
    BlueFog's.

    Raises:
        ValueError: `size` is not positive.

    Example:
        >>> from bluefog_pg.topology_util import ExponentialTwoGraph
        >>> sorted(ExponentialTwoGraph(8)[0])
        [0, 1, 2, 4]
    """
    return ExponentialGraph(size, base=2)


PowerTwoRingGraph = ExponentialTwoGraph  # the function's name in BlueFog's first versions


def ExponentialGraph(size: int, base: int = 2) -> nx.DiGraph[int]:
    """Return the graph in which rank i sends to i + 1, i + base, i + base^2, ... (mod `size`).

    The weights are uniform. BlueFog's function of this name leaves out some of the edges.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `base` is not an integer of at least 2.

    Example:
        >>> from bluefog_pg.topology_util import ExponentialGraph
        >>> sorted(ExponentialGraph(12, base=3)[0])
        [0, 1, 3, 9]
    """
    size = positive("size", size)
    return circulant(size, _powers_below(size, base_above_one(base)))


def SymmetricExponentialGraph(size: int, base: int = 4) -> nx.DiGraph[int]:
    """Return the graph that joins ranks whose distance on the circle is a power of `base`.

    The weights are uniform. BlueFog has this function.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `base` is not an integer of at least 2.

    Example:
        >>> from bluefog_pg.topology_util import SymmetricExponentialGraph
        >>> sorted(SymmetricExponentialGraph(12)[0])
        [0, 1, 4, 8, 11]
    """
    size, base = positive("size", size), base_above_one(base)
    return circulant(size, (d for d in range(1, size) if isPowerOf(min(d, size - d), base)))


@renamed(left_connect="connect_style")
def RingGraph(size: int, connect_style: int = 0) -> nx.DiGraph[int]:
    """Return a ring: each rank and its neighbors on a circle, uniform weights.

    With both neighbors the spectral gap is (2/3) (1 - cos(2 pi / n)): it shrinks with 1 / n^2.

    Args:
        size: number of ranks.
        connect_style: 0, both neighbors; 1, i sends to i - 1; 2, i sends to i + 1. A bool is
            `left_connect` of BlueFog's first version: True is 1, False is 2.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `connect_style` is none of the three.

    Example:
        >>> from bluefog_pg.topology_util import RingGraph
        >>> sorted(RingGraph(5)[0]), sorted(RingGraph(5, connect_style=2)[0])
        ([0, 1, 4], [0, 1])
    """
    styles = {0: (1, -1), 1: (-1,), 2: (1,)}
    if isinstance(connect_style, bool):
        connect_style = 1 if connect_style else 2
    size, style = positive("size", size), integer("connect_style", connect_style)
    if style not in styles:
        raise ArgumentError(f"connect_style must be 0, 1 or 2, got {style}")
    return circulant(size, styles[style])


def BiRingGraph(size: int) -> nx.DiGraph[int]:
    """Return `RingGraph` with both neighbors, by its name in BlueFog's first version.

    Raises:
        ValueError: `size` is not positive.

    Example:
        >>> from bluefog_pg.topology_util import BiRingGraph, IsTopologyEquivalent, RingGraph
        >>> IsTopologyEquivalent(BiRingGraph(5), RingGraph(5))
        True
    """
    return RingGraph(size)


def FullyConnectedGraph(size: int) -> nx.DiGraph[int]:
    """Return the graph in which each rank sends to every other one, uniform weights.

    One averaging over it is the global mean.

    Raises:
        ValueError: `size` is not positive.

    Example:
        >>> from bluefog_pg.topology_util import FullyConnectedGraph, spectral_gap
        >>> round(spectral_gap(FullyConnectedGraph(4)), 6)
        1.0
    """
    return circulant(positive("size", size), range(1, size))


def StarGraph(size: int, center_rank: int = 0) -> nx.DiGraph[int]:
    """Return a hub and its spokes, with 1/n on every edge and on the hub itself.

    The other ranks keep 1 - 1/n. The graph is not regular: it averages with `is_weighted=True`
    only. From three ranks on the spectral gap is 1/n.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `center_rank` is no rank.

    Example:
        >>> from bluefog_pg.topology_util import GetRecvWeights, StarGraph
        >>> GetRecvWeights(StarGraph(4), 2)
        (0.75, {0: 0.25})
    """
    size = positive("size", size)
    hub = rank_below(size, "center_rank", center_rank)
    share = 1.0 / size

    def edges() -> Iterator[tuple[int, int, float]]:
        yield hub, hub, share
        for rank in range(size):
            if rank != hub:
                yield rank, hub, share
                yield hub, rank, share
                yield rank, rank, 1.0 - share

    return digraph(size, edges())


def MeshGrid2DGraph(size: int, shape: tuple[int, int] | None = None) -> nx.DiGraph[int]:
    """Return a grid of rows and columns without wrap-around, Metropolis-Hastings weights.

    It is not regular: it averages with `is_weighted=True` only.

    Args:
        size: number of ranks; rank r is in row r // columns.
        shape: (rows, columns); None, the two closest factors, rows first (1 and n for a prime n).

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `shape` does not hold `size` ranks.

    Example:
        >>> from bluefog_pg.topology_util import MeshGrid2DGraph
        >>> sorted(MeshGrid2DGraph(6)[0]), sorted(MeshGrid2DGraph(6, shape=(3, 2))[0])
        ([0, 1, 3], [0, 1, 2])
    """
    return _grid(size, shape, is_periodic=False)


def TorusGraph(size: int, shape: tuple[int, int] | None = None) -> nx.DiGraph[int]:
    """Return a grid whose rows and columns are rings, uniform weights.

    From three rows and columns on each weight is 1/5. Two rows are one neighbor apart, not two; one
    row is a ring.

    Args:
        size: number of ranks; rank r is in row r // columns.
        shape: (rows, columns); None, the two closest factors, rows first (1 and n for a prime n).

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `shape` does not hold `size` ranks.

    Example:
        >>> from bluefog_pg.topology_util import TorusGraph
        >>> sorted(TorusGraph(9)[0])
        [0, 1, 2, 3, 6]
    """
    return _grid(size, shape, is_periodic=True)


def HypercubeGraph(size: int) -> nx.DiGraph[int]:
    """Return the graph that joins ranks which differ in one binary digit, uniform weights.

    Its spectral gap is 2 / (log2(n) + 1).

    Raises:
        ValueError: `size` is not a power of two.

    Example:
        >>> from bluefog_pg.topology_util import HypercubeGraph
        >>> sorted(HypercubeGraph(8)[5])
        [1, 4, 5, 7]
    """
    size = positive("size", size)
    if not isPowerOf(size, 2):
        raise ValueError(f"size of a hypercube must be a power of two, got {size}")
    bits = list(_powers_below(size, 2))
    share = 1.0 / (1 + len(bits))
    return digraph(size, ((rank, rank ^ bit, share) for rank in range(size) for bit in (0, *bits)))


def DeBruijnGraph(size: int, base: int = 2) -> nx.DiGraph[int]:
    """Return the graph in which rank i sends to base * i + k (mod `size`) for k = 0 .. base-1.

    Each edge weighs 1/base, and edges that coincide add up. The graph is generalized to any size
    (Imase and Itoh, 1981). Where `size` is base^m, the average is exact after m steps of this one
    graph. It is the one graph here without a self-loop at most ranks: a rank's own value comes back
    by way of the others.

    Raises:
        ValueError: `size` is not positive, or `base` too large.
        ArgumentError: `base` is not an integer of at least 2.

    Example:
        >>> from bluefog_pg.topology_util import DeBruijnGraph, mixing_time
        >>> sorted(DeBruijnGraph(8)[3]), mixing_time(DeBruijnGraph(8))
        ([6, 7], 3)
    """
    size, base = positive("size", size), base_above_one(base)
    require_edges("base", size, base)
    return digraph(
        size,
        ((rank, (base * rank + k) % size, 1.0 / base) for rank in range(size) for k in range(base)),
    )


def ErdosRenyiGraph(size: int, probability: float, seed: int = 0) -> nx.DiGraph[int]:
    """Return a connected random graph: each pair of ranks is joined with `probability`.

    The weights are Metropolis-Hastings. Where the drawn graph is not connected, the ring 0 - 1 -
    ... - n-1 - 0 is added to it. It is not regular: it averages with `is_weighted=True` only.

    Args:
        size: number of ranks.
        probability: from 0 (the ring) to 1 (all pairs); above ln(n) / n the draw is mostly
            connected.
        seed: seeds the draw. Every rank must give the same one, since all need the same graph.

    Raises:
        ValueError: `size` is not positive, or `probability` is not from 0 to 1.
        TypeError: `seed` is not an integer, or `probability` no number.

    Example:
        >>> from bluefog_pg.topology_util import ErdosRenyiGraph, is_doubly_stochastic
        >>> is_doubly_stochastic(ErdosRenyiGraph(10, probability=0.4, seed=3))
        True
    """
    import networkx as nx

    size, seed = positive("size", size), integer("seed", seed)
    probability = real("probability", probability)
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"probability must be from 0 to 1, got {probability}")
    require_edges("size", size, math.ceil(probability * size))
    drawn = nx.gnp_random_graph(size, probability, seed=seed)
    if not nx.is_connected(drawn):
        drawn.add_edges_from((rank, (rank + 1) % size) for rank in range(size))
    return MetropolisHastingsWeights(drawn)


def _powers_below(size: int, base: int) -> Iterable[int]:
    power = 1
    while power < size:
        yield power
        power *= base


def _grid(size: int, shape: tuple[int, int] | None, is_periodic: bool) -> nx.DiGraph[int]:
    import networkx as nx

    size = positive("size", size)
    rows, columns = _closest_factors(size) if shape is None else _sides(size, shape)
    places = nx.grid_2d_graph(rows, columns, periodic=is_periodic)
    return MetropolisHastingsWeights(nx.convert_node_labels_to_integers(places))  # in row order


def _sides(size: int, shape: Any) -> tuple[int, int]:
    try:
        rows, columns = (integer("shape", side) for side in shape)
    except (TypeError, ValueError):
        rows = columns = 0
    if min(rows, columns) < 1 or rows * columns != size:
        raise ArgumentError(f"shape must be (rows, columns) with product {size}, got {shape!r}")
    return rows, columns


def _closest_factors(size: int) -> tuple[int, int]:
    rows = next(r for r in range(math.isqrt(size), 0, -1) if size % r == 0)
    return rows, size // rows
