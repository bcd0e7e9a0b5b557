"""Whom the averages of an optimizer are with, step after step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from bluefog_pg._topology import check_graph, neighborhood_of
from bluefog_pg.topology import topology_of

if TYPE_CHECKING:
    import networkx as nx

    from bluefog_pg._member import Member
    from bluefog_pg._topology import Neighborhood

    Graph = nx.DiGraph[int]
    # A digraph; the steps of a schedule, again and again; its ranks to send to and to receive from,
    # step after step; or the name of one.
    Topology = Graph | Sequence[Graph] | Iterator[tuple[Sequence[int], Sequence[int]]] | str
    Weights = Mapping[int, float]


@dataclass
class Route:
    """The arguments of a neighbour operation: all None, over the group's topology."""

    self_weight: float | None = None
    src_weights: Weights | None = None
    dst_weights: Weights | Sequence[int] | None = None


def routes_of(
    topology: Topology | None, member: Member, takes_weights: bool = True
) -> Iterator[Route]:
    """Of every step, without end.

    Raises:
        TypeError, ValueError: what is no topology of the group's ranks.
    """
    if topology is None:
        return cycle([Route()])
    if isinstance(topology, Iterator):
        return (_route_of_ranks(to, source) for to, source in topology)
    graphs = _graphs(topology, member)
    _warn_of_doubtful(graphs, member, takes_weights)
    return cycle([_route(graph, member.rank) for graph in graphs])


def settled(route: Route, member: Member) -> tuple[float, dict[int, float], list[int]]:
    """The weights of this rank and of its sources, and its destinations.

    Those of the group's topology where the route says nothing.
    """
    near = topology_of(member).neighborhood
    own, sources = _weights_of(near)
    if route.src_weights is not None and route.self_weight is not None:
        own, sources = route.self_weight, dict(route.src_weights)
    to = near.destinations if route.dst_weights is None else route.dst_weights
    return own, sources, list(to)


def is_schedule(topology: Topology | None) -> bool:
    """Whether steps differ."""
    return topology == "one-peer-exp2" or isinstance(topology, list | tuple | Iterator)


def _graphs(topology: Any, member: Member) -> list[Graph]:
    from bluefog_pg import topology_util

    where = f"{member.who} DistributedOptimizer: "
    named: dict[str, Callable[[int], list[Graph]]] = {
        "exp2": lambda size: [topology_util.ExponentialTwoGraph(size)],
        "one-peer-exp2": topology_util.OnePeerExponentialTwoGraphs,
        "ring": lambda size: [topology_util.RingGraph(size)],
        "full": lambda size: [topology_util.FullyConnectedGraph(size)],
    }
    if isinstance(topology, str):
        if topology not in named:
            raise ValueError(f"{where}topology must be one of {sorted(named)}, not {topology!r}")
        topology = named[topology](member.size)
    graphs = list(topology) if isinstance(topology, (list, tuple)) else [topology]
    if not graphs:
        raise ValueError(f"{where}the topology's schedule has no steps")
    for graph in graphs:
        check_graph(graph, member.size, "ranks", where)
    return graphs


def _route(graph: Graph, rank: int) -> Route:
    is_weighted = any("weight" in data for _, _, data in graph.edges(data=True))
    near = neighborhood_of(graph, rank, is_weighted)
    return Route(*_weights_of(near), list(near.destinations))


def _weights_of(near: Neighborhood) -> tuple[float, dict[int, float]]:
    """Of the rank itself, and of its sources."""
    alike = 1.0 / (len(near.sources) + 1)
    own = alike if near.self_weight is None else near.self_weight
    return own, near.source_weights or dict.fromkeys(near.sources, alike)


def _route_of_ranks(to: Sequence[int], source: Sequence[int]) -> Route:
    alike = 1.0 / (len(source) + 1)
    return Route(alike, dict.fromkeys(source, alike), list(to))


def _warn_of_doubtful(graphs: Sequence[Graph], member: Member, takes_weights: bool) -> None:
    import networkx as nx

    if member.size > 1 and not nx.is_strongly_connected(nx.compose_all(graphs)):
        warnings.warn(
            f"{member.who} DistributedOptimizer: the topology is not strongly connected: some "
            "ranks never hear of others, and the ranks' models will not agree",
            stacklevel=5,
        )
    for graph in graphs if takes_weights else ():
        route = _route(graph, member.rank)
        total = (route.self_weight or 0.0) + sum((route.src_weights or {}).values())
        if abs(total - 1) > 1e-6:
            warnings.warn(
                f"{member.who} DistributedOptimizer: this rank's weights in the topology sum to "
                f"{total:g}, not 1: each average scales the parameters by that",
                stacklevel=5,
            )
