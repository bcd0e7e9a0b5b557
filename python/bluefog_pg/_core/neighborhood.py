"""This module has the part of a topology that one rank needs, and checks topologies."""

from __future__ import annotations

import math
import numbers
import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx as nx

    from bluefog_pg._C import Edges
    from bluefog_pg._core.edge_cache import EdgeCache


@dataclass(frozen=True)
class Neighborhood:
    """A Neighborhood has what one node of a digraph must know to average with its neighbors.

    Nodes are in ascending order, and the node itself is not among its neighbors.
    """

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    # If both weights are None, the node and its sources weigh 1 / (in-degree + 1) each.
    self_weight: float | None
    source_weights: dict[int, float] | None


@dataclass(frozen=True)
class Topology:
    """A Topology is the static topology of a group, or of its machines, as one rank has it."""

    graph: nx.DiGraph[int]
    neighborhood: Neighborhood
    edges: Edges
    edge_cache: EdgeCache = field(default_factory=dict)  # edges of calls that use this topology


def neighborhood_of(graph: nx.DiGraph[int], node: int, is_weighted: bool) -> Neighborhood:
    sources = tuple(sorted(int(n) for n in graph.predecessors(node) if n != node))
    destinations = tuple(sorted(int(n) for n in graph.successors(node) if n != node))
    if not is_weighted:
        return Neighborhood(sources, destinations, None, None)

    def weight(source: int) -> float:
        return float(graph.edges[source, node].get("weight", 1.0))

    own = weight(node) if graph.has_edge(node, node) else 0.0
    return Neighborhood(sources, destinations, own, {s: weight(s) for s in sources})


def as_float(number: Any) -> float:
    """Return `float(number)`, or infinity if that is too large; raise TypeError for strings."""
    if isinstance(number, str | bytes):
        raise TypeError
    try:
        return float(number)
    except OverflowError:
        return math.inf


def check_graph(topology: object, size: int, nodes: str, where: str) -> None:
    """Raise unless the topology is a digraph of the nodes 0 to size - 1 with finite weights.

    Args:
        topology: the graph to check.
        size: the number of nodes.
        nodes: the plural noun for nodes, such as "ranks".
        where: the beginning of the errors' texts.

    Raises:
        TypeError: the topology is no digraph, or has other nodes than 0 to size - 1.
        ValueError: a weight is not a finite number.
    """
    import networkx as nx

    if not isinstance(topology, nx.DiGraph) or topology.is_multigraph():
        raise TypeError(
            f"{where}topology must be a networkx.DiGraph, not {type(topology).__name__}"
            f"{'; networkx.DiGraph(topology) makes one' if isinstance(topology, nx.Graph) else ''}"
        )
    expected = set(range(size))
    strangers = [n for n in topology if not isinstance(n, numbers.Integral) or n not in expected]
    if strangers:
        raise TypeError(
            f"{where}the nodes must be the {nodes} 0 to {size - 1}; not among them: "
            f"{reprlib.repr(strangers)}"
        )
    missing = sorted(expected - set(topology))
    if missing:
        raise TypeError(
            f"{where}the topology lacks {nodes} {reprlib.repr(missing)} of 0 to {size - 1}; "
            f"one of the {nodes} without edges needs add_node, too"
        )
    for source, destination, weight in topology.edges(data="weight", default=1.0):
        number = as_float(weight) if isinstance(weight, numbers.Real) else weight
        if not isinstance(number, float) or not math.isfinite(number):
            raise ValueError(
                f"{where}edge {source} -> {destination} has weight {number!r}; "
                "weights must be finite numbers"
            )
