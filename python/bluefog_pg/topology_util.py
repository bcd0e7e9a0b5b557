"""Builders of weighted digraphs.

In every graph the edge i -> j means that i sends to j, with weight A[i, j]; nodes are 0 .. n-1 and
have self-loops. Rows and columns of A sum to one, so repeated averaging keeps the global mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import networkx as nx


def ExponentialTwoGraph(size: int) -> nx.DiGraph[int]:
    """Each rank i sends to i + 1, i + 2, i + 4, ... (mod `size`), uniform weights.

    The spectral gap shrinks only with log(size): ||W - 11^T/n|| = 1 - 2 / (2 + floor(log2(n - 1)))
    for even n (Ying et al., NeurIPS 2021).

    Raises:
        ValueError: `size` is not positive.
    """
    return _circulant(size, _powers_of_two_below(size))


def RingGraph(size: int, connect_style: int = 0) -> nx.DiGraph[int]:
    """A ring: each rank and its neighbours on a circle, uniform weights.

    Args:
        size: number of ranks.
        connect_style: 0, both neighbours; 1, i sends to i - 1; 2, i sends to i + 1.

    Raises:
        ValueError: `size` is not positive, or `connect_style` is none of the three.
    """
    styles = {0: (1, -1), 1: (-1,), 2: (1,)}
    if connect_style not in styles:
        raise ValueError(f"connect_style must be 0, 1 or 2, got {connect_style}")
    return _circulant(size, styles[connect_style])


def FullyConnectedGraph(size: int) -> nx.DiGraph[int]:
    """Each rank sends to every other one, uniform weights: one averaging is the global mean.

    Raises:
        ValueError: `size` is not positive.
    """
    return _circulant(size, range(1, size))


def _powers_of_two_below(size: int) -> Iterable[int]:
    distance = 1
    while distance < size:
        yield distance
        distance *= 2


def _circulant(size: int, distances: Iterable[int]) -> nx.DiGraph[int]:
    import networkx as nx

    if size < 1:
        raise ValueError(f"a topology needs at least one rank, got size {size}")
    offsets = {0} | {distance % size for distance in distances}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(size))
    graph.add_weighted_edges_from(
        (rank, (rank + offset) % size, 1.0 / len(offsets))
        for rank in range(size)
        for offset in sorted(offsets)
    )
    return graph
