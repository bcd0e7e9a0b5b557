"""This module says which ranks an optimizer averages with in each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

from bluefog_pg._core.neighborhood import check_graph, neighborhood_of
from bluefog_pg._core.warning import warn
from bluefog_pg.topology.group_topology import topology_of

if TYPE_CHECKING:
    import networkx as nx

    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg._core.neighborhood import Neighborhood

    Graph = nx.DiGraph[int]
    # A topology is a digraph, or a list of digraphs, whose steps repeat. It may also be an iterator
    # that yields for each step the ranks to send to and to receive from, or the name of a topology.
    Topology = Graph | Sequence[Graph] | Iterator[tuple[Sequence[int], Sequence[int]]] | str
    Weights = Mapping[int, float]


class Averages(Protocol):
    """This protocol is the part of an algorithm that says which weights its averages take."""

    @property
    def takes_weights(self) -> bool: ...
    @property
    def needs(self) -> str: ...


@dataclass
class Route:
    """A Route has the weights of a neighbor operation; all None mean the group's topology."""

    self_weight: float | None = None
    src_weights: Weights | None = None
    dst_weights: Weights | Sequence[int] | None = None


def routes_of(
    topology: Topology | None, member: GroupState, algorithm: Averages | None = None
) -> Iterator[Route]:
    """Return an iterator over the routes of all steps, which ends only if the topology does.

    Args:
        topology: a topology of the group's ranks; None, the group's own.
        member: this rank's state of the group.
        algorithm: the algorithm that takes the routes, for warnings about weights.

    Raises:
        TypeError, ValueError: `topology` is no topology of the group's ranks.
    """
    if topology is None:
        own = topology_of(member)
        has_weights = own.neighborhood.self_weight is not None
        _warn_of_doubtful([_Step(own.graph, has_weights)], member, algorithm)
        return cycle([Route()])
    if isinstance(topology, Iterator):
        return (_route_of_ranks(step, member) for step in topology)
    steps = [_Step.of(graph) for graph in _graphs(topology, member)]
    _warn_of_doubtful(steps, member, algorithm)
    return cycle([step.route(member.rank) for step in steps])


def settled(route: Route, member: GroupState) -> tuple[tuple[float, dict[int, float]], list[int]]:
    """Return this rank's weight and those of its sources, as a pair, and its destinations.

    Where the route says nothing, they are those of the group's topology.
    """
    near = topology_of(member).neighborhood
    weights = _weights_of(near)
    if route.src_weights is not None and route.self_weight is not None:
        weights = route.self_weight, dict(route.src_weights)
    to = near.destinations if route.dst_weights is None else route.dst_weights
    return weights, list(to)


def neighbors_in(topology: Topology | None, member: GroupState) -> tuple[list[int], list[int]]:
    """Return all sources and all destinations of this rank in a topology.

    In a schedule they are those of all steps. An iterator may name any rank, so they are all
    others.
    """
    if topology is None:
        near = topology_of(member).neighborhood
        return list(near.sources), list(near.destinations)
    if isinstance(topology, Iterator):
        everyone = [rank for rank in range(member.size) if rank != member.rank]
        return everyone, everyone
    graphs = _graphs(topology, member)
    steps = [neighborhood_of(graph, member.rank, False) for graph in graphs]
    sources = {rank for step in steps for rank in step.sources}
    return sorted(sources), sorted({rank for step in steps for rank in step.destinations})


def is_schedule(topology: Topology | None) -> bool:
    """Return whether the topology's steps may differ."""
    if isinstance(topology, list | tuple):
        return len(topology) > 1
    return topology == "one-peer-exp2" or isinstance(topology, Iterator)


def _graphs(topology: Any, member: GroupState) -> list[Graph]:
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
            raise ValueError(
                f"{where}topology must be a networkx.DiGraph (topology_util has many) or one of "
                f"{sorted(named)}, not {topology!r}"
            )
        topology = named[topology](member.size)
    graphs = list(topology) if isinstance(topology, (list, tuple)) else [topology]
    if not graphs:
        raise ValueError(f"{where}the topology's schedule has no steps")
    for graph in graphs:
        check_graph(graph, member.size, "ranks", where)
    return graphs


@dataclass
class _Step:
    """A _Step is a digraph of a schedule; without weights all sources count equally."""

    graph: Graph
    has_weights: bool

    @staticmethod
    def of(graph: Graph) -> _Step:
        return _Step(graph, any("weight" in data for _, _, data in graph.edges(data=True)))

    def route(self, rank: int) -> Route:
        near = neighborhood_of(self.graph, rank, self.has_weights)
        return Route(*_weights_of(near), list(near.destinations))


def _weights_of(near: Neighborhood) -> tuple[float, dict[int, float]]:
    """Return the weights of the rank itself and of its sources."""
    alike = 1.0 / (len(near.sources) + 1)
    own = alike if near.self_weight is None else near.self_weight
    return own, near.source_weights or dict.fromkeys(near.sources, alike)


def _route_of_ranks(step: Any, member: GroupState) -> Route:
    try:
        to, source = (list(ranks) for ranks in step)
    except (TypeError, ValueError):
        raise TypeError(
            f"{member.who} DistributedOptimizer: the topology's iterator must give ([ranks to send "
            f"to], [ranks to receive from]), not {step!r}"
        ) from None
    alike = 1.0 / (len(source) + 1)
    return Route(alike, dict.fromkeys(source, alike), to)


def _warn_of_doubtful(
    steps: Sequence[_Step], member: GroupState, algorithm: Averages | None
) -> None:
    import networkx as nx

    every_edge = nx.compose_all([step.graph for step in steps])
    if member.size > 1 and not nx.is_strongly_connected(every_edge):
        _warn(
            member,
            "the topology is not strongly connected: the values of some ranks never reach all "
            "others, and the ranks' models will not agree",
        )
    if algorithm is not None and not algorithm.takes_weights:
        return
    for step in steps:
        route = step.route(member.rank)
        total = (route.self_weight or 0.0) + sum((route.src_weights or {}).values())
        if abs(total - 1) > 1e-6:
            _warn(
                member,
                f"this rank's weights in the topology sum to {total:g}, not 1: each average scales "
                "the parameters by that sum",
            )
    _warn_of_weights(steps, member, algorithm)


def _warn_of_weights(
    steps: Sequence[_Step], member: GroupState, algorithm: Averages | None
) -> None:
    """Warn of weights with which the algorithm does not end at the right solution."""
    import numpy as np

    if algorithm is None or not algorithm.needs or member.size == 1:
        return
    for step in steps:
        weights = np.zeros((member.size, member.size))
        for rank in range(member.size):
            route = step.route(rank)
            weights[rank, rank] = route.self_weight
            for source, weight in (route.src_weights or {}).items():
                weights[rank, source] = weight
        is_well = np.allclose(weights.sum(0), 1) and np.allclose(weights.sum(1), 1)
        if algorithm.needs == "symmetric":
            is_well = np.allclose(weights, weights.T)
        if not is_well:
            _warn(
                member,
                f"{type(algorithm).__name__} needs {algorithm.needs} weights to converge to the "
                "right parameters, and the topology has others: try topology='ring', or "
                "topology_util.MetropolisHastingsWeights(graph) of an undirected graph",
            )
            return


def _warn(member: GroupState, what: str) -> None:
    warn(f"{member.who} DistributedOptimizer: {what}")
