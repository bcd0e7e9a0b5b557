"""Builders of weighted digraphs: the well-known graphs, of any number of ranks."""

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
    """Each rank i sends to i + 1, i + 2, i + 4, ... (mod `size`), uniform weights.

    The spectral gap shrinks only with log(size): ||W - 11^T/n|| = 1 - 2 / (2 + floor(log2(n - 1)))
    for even n (Ying et al., "Exponential Graph is Provably Efficient for Decentralized Deep
    Training", NeurIPS 2021).

    Raises:
        ValueError: `size` is not positive.
    """
    return ExponentialGraph(size, base=2)


PowerTwoRingGraph = ExponentialTwoGraph  # its name in BlueFog's first versions


def ExponentialGraph(size: int, base: int = 2) -> nx.DiGraph[int]:
    """Each rank i sends to i + 1, i + base, i + base^2, ... (mod `size`), uniform weights.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `base` is not an integer of at least 2.
    """
    size = positive("size", size)
    return circulant(size, _powers_below(size, base_above_one(base)))


def SymmetricExponentialGraph(size: int, base: int = 4) -> nx.DiGraph[int]:
    """Ranks whose distance on the circle is a power of `base` are neighbours, uniform weights.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `base` is not an integer of at least 2.
    """
    size, base = positive("size", size), base_above_one(base)
    return circulant(size, (d for d in range(1, size) if isPowerOf(min(d, size - d), base)))


@renamed(left_connect="connect_style")
def RingGraph(size: int, connect_style: int = 0) -> nx.DiGraph[int]:
    """A ring: each rank and its neighbours on a circle, uniform weights.

    With both neighbours the spectral gap is (2/3) (1 - cos(2 pi / n)): it shrinks with 1 / n^2.

    Args:
        size: number of ranks.
        connect_style: 0, both neighbours; 1, i sends to i - 1; 2, i sends to i + 1. A bool is
            `left_connect` of BlueFog's first version: True is 1, False is 2.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `connect_style` is none of the three.
    """
    styles = {0: (1, -1), 1: (-1,), 2: (1,)}
    if isinstance(connect_style, bool):
        connect_style = 1 if connect_style else 2
    size, style = positive("size", size), integer("connect_style", connect_style)
    if style not in styles:
        raise ArgumentError(f"connect_style must be 0, 1 or 2, got {style}")
    return circulant(size, styles[style])


def BiRingGraph(size: int) -> nx.DiGraph[int]:
    """`RingGraph` with both neighbours, by its name in BlueFog's first version.

    Raises:
        ValueError: `size` is not positive.
    """
    return RingGraph(size)


def FullyConnectedGraph(size: int) -> nx.DiGraph[int]:
    """Each rank sends to every other one, uniform weights: one averaging is the global mean.

    Raises:
        ValueError: `size` is not positive.
    """
    return circulant(positive("size", size), range(1, size))


def StarGraph(size: int, center_rank: int = 0) -> nx.DiGraph[int]:
    """A hub and its spokes: 1/n on every edge and on the hub itself, 1 - 1/n on the others.

    Not regular: it averages with `is_weighted=True` only. From three ranks on the gap is 1/n.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `center_rank` is no rank.
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
    """A grid of rows and columns without wrap-around, Metropolis-Hastings weights.

    Not regular: it averages with `is_weighted=True` only.

    Args:
        size: number of ranks; rank r is in row r // columns.
        shape: (rows, columns); None, the two closest factors, rows first (1 and n for a prime n).

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `shape` does not hold `size` ranks.
    """
    return _grid(size, shape, is_periodic=False)


def TorusGraph(size: int, shape: tuple[int, int] | None = None) -> nx.DiGraph[int]:
    """A grid whose rows and columns are rings, uniform weights: 1/5 from three rows and columns on.

    Two rows are one neighbour apart, not two; one row is a ring.

    Args:
        size: number of ranks; rank r is in row r // columns.
        shape: (rows, columns); None, the two closest factors, rows first (1 and n for a prime n).

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `shape` does not hold `size` ranks.
    """
    return _grid(size, shape, is_periodic=True)


def HypercubeGraph(size: int) -> nx.DiGraph[int]:
    """Ranks that differ in one binary digit are neighbours, uniform weights; gap 2 / (log2(n) + 1).

    Raises:
        ValueError: `size` is not a power of two.
    """
    size = positive("size", size)
    if not isPowerOf(size, 2):
        raise ValueError(f"size of a hypercube must be a power of two, got {size}")
    bits = list(_powers_below(size, 2))
    share = 1.0 / (1 + len(bits))
    return digraph(size, ((rank, rank ^ bit, share) for rank in range(size) for bit in (0, *bits)))


def DeBruijnGraph(size: int, base: int = 2) -> nx.DiGraph[int]:
    """Each rank i sends to base * i + k (mod `size`) for k = 0 .. base-1, each with weight 1/base.

    Generalised to any size (Imase and Itoh, 1981). Where `size` is base^m, the average is exact
    after m steps of this one graph. Edges that coincide add up. It is the one graph here without a
    self-loop at most ranks: the rank's own value comes back by way of the others.

    Raises:
        ValueError: `size` is not positive, or `base` too large.
        ArgumentError: `base` is not an integer of at least 2.
    """
    size, base = positive("size", size), base_above_one(base)
    require_edges("base", size, base)
    return digraph(
        size,
        ((rank, (base * rank + k) % size, 1.0 / base) for rank in range(size) for k in range(base)),
    )


def ErdosRenyiGraph(size: int, probability: float, seed: int = 0) -> nx.DiGraph[int]:
    """Each pair of ranks is joined with `probability`, Metropolis-Hastings weights; connected.

    Where what was drawn is not connected, the ring 0 - 1 - ... - n-1 - 0 is added to it. Not
    regular: it averages with `is_weighted=True` only.

    Args:
        size: number of ranks.
        probability: from 0 (the ring) to 1 (all pairs); above ln(n) / n it is mostly connected.
        seed: of the draw. The same on every rank, as the graph must be.

    Raises:
        ValueError: `size` is not positive, or `probability` is not from 0 to 1.
        TypeError: `seed` is not an integer, or `probability` no number.
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
    return MetropolisHastingsWeights(nx.convert_node_labels_to_integers(places))  # row by row


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
