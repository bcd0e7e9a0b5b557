"""This module has weights with which any connected undirected graph averages.

Each rank needs only its neighbors' degrees for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import networkx as nx


def MetropolisHastingsWeights(graph: nx.Graph[int] | nx.DiGraph[int]) -> nx.DiGraph[int]:
    """Return the same edges with w_ij = 1 / (1 + max(d_i, d_j)); the self-loops get what is left.

    d is the number of neighbors without the rank itself, so a self-loop always weighs something
    and the weights are symmetric and doubly stochastic: a connected graph averages (Xiao, Boyd,
    Kim, "Distributed average consensus with least-mean-square deviation", 2007). Uniform weights
    (`set_topology` without `is_weighted`) do that only where all degrees are equal.

    Args:
        graph: undirected, or directed with every edge in both directions. Its weights and
            self-loops do not count; its nodes are kept, in their order.

    Returns:
        A new DiGraph with "weight" on each edge, self-loops included.

    Raises:
        TypeError: `graph` is no networkx graph.
        ValueError: an edge lacks the opposite one.

    Example:
        >>> import networkx as nx
        >>> from bluefog_pg.topology_util import GetRecvWeights, MetropolisHastingsWeights
        >>> GetRecvWeights(MetropolisHastingsWeights(nx.star_graph(3)), 0)
        (0.25, {1: 0.25, 2: 0.25, 3: 0.25})
    """
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise TypeError(f"graph must be a networkx graph, not {type(graph).__name__}")
    near = {node: set(graph[node]) - {node} for node in graph}
    for node, others in near.items():
        for other in others:
            if node not in near[other]:
                raise ValueError(
                    f"Metropolis-Hastings weights need every edge in both directions; there is "
                    f"{node} -> {other}, and not {other} -> {node}"
                )
    place = {node: index for index, node in enumerate(graph)}
    weighted: nx.DiGraph[int] = nx.DiGraph()
    weighted.add_nodes_from(graph)
    for node, others in near.items():
        row = {other: 1.0 / (1 + max(len(others), len(near[other]))) for other in others}
        row[node] = 1.0 - sum(row[other] for other in sorted(others, key=place.__getitem__))
        for other in sorted(row, key=place.__getitem__):
            weighted.add_edge(node, other, weight=row[other])
    return weighted
