"""This module has the static topologies of a process group, of its ranks and of its machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bluefog_pg._core.errors import ArgumentError
from bluefog_pg._core.group_state import GroupState, member_of
from bluefog_pg._core.neighborhood import (
    Neighborhood,
    Topology,
    check_graph,
    neighborhood_of,
)

if TYPE_CHECKING:
    import networkx as nx
    import torch.distributed as dist

    from bluefog_pg._C import Edges


def set_topology(
    topology: nx.DiGraph[int] | None = None,
    is_weighted: bool = False,
    group: dist.ProcessGroup | None = None,
) -> bool:
    """Set the digraph that neighbor operations use when a call names no neighbors.

    The call is local: it does not communicate. Every rank of the group must set the same graph.
    BlueFog has this function.

    Args:
        topology: nodes are the group ranks 0 .. size-1; an edge i -> j means that i sends to j.
            None: exponential-2.
        is_weighted: use the edges' "weight" (1 where absent) and those of the self-loops (0 where
            there is none). False: every rank weighs itself and its in-neighbors alike.
        group: the process group; None, the default one.

    Returns:
        True.

    Raises:
        TypeError: `topology` is not a networkx.DiGraph, or its nodes are not the group's ranks.
        ValueError: a weight is not a finite number.

    Example:
        >>> bf.set_topology(bf.topology_util.FullyConnectedGraph(bf.size()))
        True
        >>> bf.neighbor_allreduce(torch.full((2,), float(bf.rank()))).tolist()
        [1.5, 1.5]
    """
    member = member_of(group)
    if topology is None:
        from bluefog_pg.topology import graphs  # Only the default topology needs this import.

        topology = graphs.ExponentialTwoGraph(member.size)
    check_graph(topology, member.size, "ranks", f"{member.who} set_topology: ")
    near = neighborhood_of(topology, member.rank, is_weighted)
    member.topology = Topology(topology.copy(), near, _edges_over(member, near))
    return True


def load_topology(group: dist.ProcessGroup | None = None) -> nx.DiGraph[int]:
    """Return a copy of the group's topology: what was set, or exponential-2.

    Example:
        >>> graph = bf.load_topology()
        >>> sorted(graph.predecessors(0))
        [0, 2, 3]
    """
    graph: nx.DiGraph[int] = topology_of(member_of(group)).graph.copy()
    return graph


def is_topo_weighted(group: dist.ProcessGroup | None = None) -> bool:
    """Return whether the weights of the group's topology count.

    Example:
        >>> bf.is_topo_weighted()
        False
        >>> bf.set_topology(bf.topology_util.StarGraph(bf.size()), is_weighted=True)
        True
        >>> bf.is_topo_weighted()
        True
    """
    return topology_of(member_of(group)).neighborhood.self_weight is not None


def in_neighbor_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """Return the group ranks that send to this rank in the group's topology, ascending.

    Example:
        >>> bf.in_neighbor_ranks() == sorted((bf.rank() - d) % bf.size() for d in (1, 2))
        True
    """
    return list(topology_of(member_of(group)).neighborhood.sources)


def out_neighbor_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """Return the group ranks that this rank sends to in the group's topology, ascending.

    Example:
        >>> bf.out_neighbor_ranks() == sorted((bf.rank() + d) % bf.size() for d in (1, 2))
        True
    """
    return list(topology_of(member_of(group)).neighborhood.destinations)


def set_machine_topology(
    topology: nx.DiGraph[int],
    is_weighted: bool = False,
    group: dist.ProcessGroup | None = None,
) -> bool:
    """Set the digraph of machines that `hierarchical_neighbor_allreduce` averages over.

    The call is local: it does not communicate. Every rank of the group must set the same graph.
    BlueFog has this function.

    Args:
        topology: nodes are the machines 0 .. `machine_size()` - 1; an edge k -> l means that
            machine k sends to machine l.
        is_weighted: as in `set_topology`.
        group: the process group; None, the default one.

    Returns:
        True.

    Raises:
        TypeError: `topology` is not a networkx.DiGraph, or its nodes are not the machines.
        ValueError: a weight is not a finite number; `topology` is None.
        ArgumentError: the machines have different numbers of ranks.

    Example:
        >>> bf.set_machine_topology(bf.topology_util.RingGraph(bf.machine_size()))
        True
        >>> bf.in_neighbor_machine_ranks() == [1 - bf.machine_rank()]  # two machines
        True
    """
    member = member_of(group)
    where = f"{member.who} set_machine_topology: "
    if topology is None:
        raise ValueError(f"{where}topology is None; machines have no default one")
    require_alike(member, "set_machine_topology")
    check_graph(topology, len(member.machines.all), "machines", where)
    near = neighborhood_of(topology, member.machines.machine_rank, is_weighted)
    edges = _edges_over(member, near, member.machines.counterpart)
    member.machine_topology = Topology(topology.copy(), near, edges)
    return True


def load_machine_topology(group: dist.ProcessGroup | None = None) -> nx.DiGraph[int] | None:
    """Return a copy of the topology of the group's machines, or None where none was set.

    Example:
        >>> bf.set_machine_topology(bf.topology_util.RingGraph(bf.machine_size()))
        True
        >>> sorted(bf.load_machine_topology().edges)
        [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    topology = member_of(group).machine_topology
    if topology is None:
        return None
    graph: nx.DiGraph[int] = topology.graph.copy()
    return graph


def is_machine_topo_weighted(group: dist.ProcessGroup | None = None) -> bool:
    """Return whether the weights of the machines' topology count.

    Example:
        >>> graph = bf.topology_util.FullyConnectedGraph(bf.machine_size())
        >>> bf.set_machine_topology(graph, is_weighted=True)
        True
        >>> bf.is_machine_topo_weighted()
        True
    """
    topology = member_of(group).machine_topology
    return topology is not None and topology.neighborhood.self_weight is not None


def in_neighbor_machine_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """Return the machines that send to this one, ascending; none where no topology was set.

    Example:
        >>> bf.set_machine_topology(bf.topology_util.RingGraph(bf.machine_size()))
        True
        >>> bf.in_neighbor_machine_ranks() == [1 - bf.machine_rank()]  # two machines
        True
    """
    topology = member_of(group).machine_topology
    return list(topology.neighborhood.sources) if topology else []


def out_neighbor_machine_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """Return the machines that this one sends to, ascending; none where no topology was set.

    Example:
        >>> bf.set_machine_topology(bf.topology_util.RingGraph(bf.machine_size()))
        True
        >>> bf.out_neighbor_machine_ranks() == [1 - bf.machine_rank()]  # two machines
        True
    """
    topology = member_of(group).machine_topology
    return list(topology.neighborhood.destinations) if topology else []


def topology_of(member: GroupState) -> Topology:
    """Return the topology that was set for the group, or the default."""
    if member.topology is None:
        set_topology(group=member.group)
    assert member.topology is not None  # noqa: S101
    return member.topology


def require_alike(member: GroupState, what: str) -> None:
    """Raise ArgumentError unless all machines have equal numbers of ranks."""
    if not member.machines.are_alike:
        raise ArgumentError(
            f"{member.who} {what}: the machines have ranks {member.machines.all}, and each "
            "must have the same number"
        )


def _edges_over(
    member: GroupState, near: Neighborhood, rank_of: Callable[[int], int] = lambda node: node
) -> Edges:
    """Return the edges of a node; `rank_of` gives the group rank that a node stands for."""
    destinations = [(rank_of(node), 1.0) for node in near.destinations]
    if near.self_weight is None or near.source_weights is None:
        # A sum that is divided at the end is exact if all values are equal.
        sources = [(rank_of(node), 1.0) for node in near.sources]
        return member.backend.edges(1.0, sources, destinations, len(sources) + 1.0)
    sources = [(rank_of(node), weight) for node, weight in sorted(near.source_weights.items())]
    return member.backend.edges(near.self_weight, sources, destinations, 1.0)
