"""The static topology of a process group: which ranks average with which, and how much."""

from __future__ import annotations

import math
import numbers
import reprlib
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bluefog_pg import topology_util
from bluefog_pg._groups import resolve, who

if TYPE_CHECKING:
    import networkx as nx
    import torch.distributed as dist


@dataclass(frozen=True)
class Neighborhood:
    """One rank's view of a topology. Ranks are group ranks, ascending, without the rank itself."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    # None: uniform, 1 / (in-degree + 1).
    self_weight: float | None
    source_weights: dict[int, float] | None


@dataclass(frozen=True)
class _Topology:
    graph: nx.DiGraph[int]
    neighborhood: Neighborhood


_topologies: weakref.WeakKeyDictionary[dist.ProcessGroup, _Topology] = weakref.WeakKeyDictionary()


def set_topology(
    topology: nx.DiGraph[int] | None = None,
    is_weighted: bool = False,
    group: dist.ProcessGroup | None = None,
) -> bool:
    """Set the digraph that `neighbor_allreduce` averages over when it is given no weights.

    Local: no communication. Every rank of the group must set the same graph.

    Args:
        topology: nodes are the group ranks 0 .. size-1; an edge i -> j means that i sends to j.
            None: exponential-2.
        is_weighted: use the edges' "weight" (1 where absent) and those of the self-loops (0 where
            there is none). False: every rank weighs itself and its in-neighbours alike.
        group: the process group; None, the default one.

    Returns:
        True.

    Raises:
        TypeError: `topology` is not a networkx.DiGraph, or its nodes are not the group's ranks.
        ValueError: a weight is not a finite number.
    """
    group = resolve(group)
    if topology is None:
        topology = topology_util.ExponentialTwoGraph(group.size())
    _check_graph(topology, group)
    neighborhood = _neighborhood(topology, group.rank(), is_weighted)
    _topologies[group] = _Topology(topology, neighborhood)
    return True


def load_topology(group: dist.ProcessGroup | None = None) -> nx.DiGraph[int]:
    """The topology of the group: what was set, or exponential-2. A copy."""
    graph: nx.DiGraph[int] = _topology(resolve(group)).graph.copy()
    return graph


def in_neighbor_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """The group ranks that send to this rank in the group's topology, ascending."""
    return list(neighborhood(resolve(group)).sources)


def out_neighbor_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """The group ranks that this rank sends to in the group's topology, ascending."""
    return list(neighborhood(resolve(group)).destinations)


def neighborhood(group: dist.ProcessGroup) -> Neighborhood:
    """This rank's part of the group's topology."""
    return _topology(group).neighborhood


def as_float(number: Any) -> float:
    """`float(number)`, infinite where that would be too large; not of strings."""
    if isinstance(number, str | bytes):
        raise TypeError
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _topology(group: dist.ProcessGroup) -> _Topology:
    if group not in _topologies:
        set_topology(group=group)
    return _topologies[group]


def _check_graph(topology: object, group: dist.ProcessGroup) -> None:
    import networkx as nx

    where = f"{who(group)} set_topology: "
    if not isinstance(topology, nx.DiGraph) or topology.is_multigraph():
        raise TypeError(
            f"{where}topology must be a networkx.DiGraph, not {type(topology).__name__}"
            f"{'; networkx.DiGraph(topology) makes one' if isinstance(topology, nx.Graph) else ''}"
        )
    ranks = set(range(group.size()))
    strangers = [n for n in topology if not isinstance(n, numbers.Integral) or n not in ranks]
    if strangers:
        raise TypeError(
            f"{where}the nodes must be the ranks 0 to {group.size() - 1}; these are none: "
            f"{reprlib.repr(strangers)}"
        )
    missing = sorted(ranks - set(topology))
    if missing:
        raise TypeError(
            f"{where}the topology lacks ranks {reprlib.repr(missing)} of 0 to {group.size() - 1}; "
            "a rank without edges needs add_node, too"
        )
    for source, destination, weight in topology.edges(data="weight", default=1.0):
        number = as_float(weight) if isinstance(weight, numbers.Real) else weight
        if not isinstance(number, float) or not math.isfinite(number):
            raise ValueError(
                f"{where}edge {source} -> {destination} has weight {number!r}; "
                "weights must be finite numbers"
            )


def _neighborhood(graph: nx.DiGraph[int], rank: int, is_weighted: bool) -> Neighborhood:
    sources = tuple(sorted(int(r) for r in graph.predecessors(rank) if r != rank))
    destinations = tuple(sorted(int(r) for r in graph.successors(rank) if r != rank))
    if not is_weighted:
        return Neighborhood(sources, destinations, None, None)

    def weight(source: int) -> float:
        return float(graph.edges[source, rank].get("weight", 1.0))

    own = weight(rank) if graph.has_edge(rank, rank) else 0.0
    return Neighborhood(sources, destinations, own, {s: weight(s) for s in sources})
