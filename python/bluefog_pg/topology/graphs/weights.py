"""This module has one rank's part of a weighted digraph, and compares digraphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bluefog_pg._core.errors import ArgumentError
from bluefog_pg._core.neighborhood import as_float
from bluefog_pg.topology.graphs.arguments import (
    base_above_one,
    integer,
    rank_below,
    require_graph,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import networkx as nx


def GetRecvWeights(topo: nx.DiGraph[int], rank: int) -> tuple[float, dict[int, float]]:
    """Return what `rank` multiplies with: column `rank` of the weights matrix.

    BlueFog has this function.

    Args:
        topo: a digraph of nodes 0 .. n-1; an edge without "weight" weighs 1.
        rank: one of its nodes.

    Returns:
        (self_weight, {source rank: weight}), sources ascending; self_weight is 0 without self-loop.
        `neighbor_allreduce` takes the two as `self_weight` and `src_weights`.

    Raises:
        TypeError: `topo` is no networkx.DiGraph of nodes 0 to n-1.
        ArgumentError: `rank` is none of its ranks.

    Example:
        >>> from bluefog_pg.topology_util import ExponentialTwoGraph, GetRecvWeights
        >>> GetRecvWeights(ExponentialTwoGraph(8), 0)
        (0.25, {4: 0.25, 6: 0.25, 7: 0.25})
    """
    rank = rank_below(size_of(topo), "rank", rank)
    return _split(rank, ((j, _weight(topo, j, rank)) for j in topo.predecessors(rank)))


GetWeights = GetRecvWeights  # the function's name in BlueFog's first versions


def GetSendWeights(topo: nx.DiGraph[int], rank: int) -> tuple[float, dict[int, float]]:
    """Return what `rank` gives to others: row `rank` of the weights matrix.

    BlueFog has this function.

    Args:
        topo: a digraph of nodes 0 .. n-1; an edge without "weight" weighs 1.
        rank: one of its nodes.

    Returns:
        (self_weight, {destination rank: weight}), destinations ascending. Beside the receivers'
        weights give neighbor_allreduce `list(...)` of it as `dst_weights`: the mapping itself would
        scale the data a second time.

    Raises:
        TypeError: `topo` is no networkx.DiGraph of nodes 0 to n-1.
        ArgumentError: `rank` is none of its ranks.

    Example:
        >>> from bluefog_pg.topology_util import ExponentialTwoGraph, GetSendWeights
        >>> GetSendWeights(ExponentialTwoGraph(8), 0)
        (0.25, {1: 0.25, 2: 0.25, 4: 0.25})
    """
    rank = rank_below(size_of(topo), "rank", rank)
    return _split(rank, ((j, _weight(topo, rank, j)) for j in topo.successors(rank)))


def IsTopologyEquivalent(topo1: nx.DiGraph[int] | None, topo2: nx.DiGraph[int] | None) -> bool:
    """Return whether both have the same weights matrix, nodes in whatever order; False for None.

    An edge of weight 0 counts as none here, as in that matrix. For `set_topology` it is one: ranks
    exchange over it, and without `is_weighted` it counts as the others do. BlueFog has this
    function.

    Raises:
        TypeError: `topo1` or `topo2` is no networkx.DiGraph.

    Example:
        >>> from bluefog_pg.topology_util import HypercubeGraph, IsTopologyEquivalent, RingGraph
        >>> IsTopologyEquivalent(RingGraph(4), HypercubeGraph(4))
        False
        >>> IsTopologyEquivalent(RingGraph(2), HypercubeGraph(2))
        True
    """
    if topo1 is None or topo2 is None:
        return False
    require_graph("topo1", topo1)
    require_graph("topo2", topo2)
    return _rows(topo1) == _rows(topo2)


def IsRegularGraph(topo: nx.DiGraph[int]) -> bool:
    """Return whether in-degree + out-degree is the same at all nodes (a self-loop counts in both).

    BlueFog has this function.

    Raises:
        TypeError: `topo` is no networkx.DiGraph.

    Example:
        >>> from bluefog_pg.topology_util import IsRegularGraph, RingGraph, StarGraph
        >>> IsRegularGraph(RingGraph(5)), IsRegularGraph(StarGraph(5))
        (True, False)
    """
    require_graph("topo", topo)
    return len({degree for _, degree in topo.degree()}) <= 1


def isPowerOf(x: int, base: int) -> bool:
    """Return whether x is base^k for an integer k >= 0; the answer is exact, however large x is.

    BlueFog has this function.

    Raises:
        ArgumentError: `base` is not an integer of at least 2, or `x` is not positive.
        TypeError: `x` is not an integer.

    Example:
        >>> from bluefog_pg.topology_util import isPowerOf
        >>> isPowerOf(81, 3), isPowerOf(80, 3)
        (True, False)
    """
    base, x = base_above_one(base), integer("x", x)
    if x < 1:
        raise ArgumentError(f"x must be at least 1, got {x}")
    while x % base == 0:
        x //= base
    return x == 1


def _weight(topo: nx.DiGraph[int], source: int, destination: int) -> float:
    weight = topo.edges[source, destination].get("weight", 1.0)
    try:
        return as_float(weight)
    except (TypeError, ValueError):
        raise ValueError(
            f"edge {source} -> {destination} has weight {weight!r}, which must be a number"
        ) from None


def _split(rank: int, weights: Iterable[tuple[int, float]]) -> tuple[float, dict[int, float]]:
    others = {int(other): weight for other, weight in sorted(weights)}
    return others.pop(rank, 0.0), others


def _rows(topo: nx.DiGraph[int]) -> dict[int, dict[int, Any]]:
    return {
        node: {
            other: weight
            for other, edge in topo[node].items()
            if (weight := edge.get("weight", 1.0)) != 0
        }
        for node in topo
    }
