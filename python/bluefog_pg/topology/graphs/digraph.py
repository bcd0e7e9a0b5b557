"""This module makes digraphs of weighted edges, with ranks and neighbors in ascending order."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bluefog_pg.topology.graphs.arguments import require_edges

if TYPE_CHECKING:
    from collections.abc import Iterable

    import networkx as nx


def digraph(size: int, edges: Iterable[tuple[int, int, float]]) -> nx.DiGraph[int]:
    """Return a digraph of the nodes 0 .. size-1; the weights of parallel edges add up."""
    import networkx as nx

    weights: defaultdict[tuple[int, int], float] = defaultdict(float)
    for source, destination, weight in edges:
        weights[source, destination] += weight
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(size))
    graph.add_weighted_edges_from((*edge, weights[edge]) for edge in sorted(weights))
    return graph


def circulant(size: int, distances: Iterable[int]) -> nx.DiGraph[int]:
    """Return the digraph in which each rank sends to itself and to the ranks at `distances`.

    Distances count modulo `size`, and all edges have one weight.
    """
    offsets = {0} | {distance % size for distance in distances}
    require_edges("size", size, len(offsets))
    share = 1.0 / len(offsets)
    return digraph(
        size,
        ((rank, (rank + offset) % size, share) for rank in range(size) for offset in offsets),
    )


def symmetric(size: int, pairs: Iterable[tuple[int, int, float]]) -> nx.DiGraph[int]:
    """Return the digraph that has both directions of each pair, with the pair's weight.

    The self-loop of a rank gets what its pairs leave of one.
    """
    left = [1.0] * size
    edges = []
    for one, other, weight in pairs:
        edges += [(one, other, weight), (other, one, weight)]
        left[one] -= weight
        left[other] -= weight
    return digraph(size, [*edges, *((rank, rank, weight) for rank, weight in enumerate(left))])
