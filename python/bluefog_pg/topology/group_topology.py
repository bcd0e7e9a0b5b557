"""The static topologies of a process group: of its ranks, and of its machines."""

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
    """Set the digraph that the neighbour operations go over when a call names no neighbours.

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
    member = member_of(group)
    if topology is None:
        from bluefog_pg.topology import graphs  # only the default needs them

        topology = graphs.ExponentialTwoGraph(member.size)
    check_graph(topology, member.size, "ranks", f"{member.who} set_topology: ")
    near = neighborhood_of(topology, member.rank, is_weighted)
    member.topology = Topology(topology.copy(), near, _edges_over(member, near))
    return True


def load_topology(group: dist.ProcessGroup | None = None) -> nx.DiGraph[int]:
    """The topology of the group: what was set, or exponential-2. A copy."""
    graph: nx.DiGraph[int] = topology_of(member_of(group)).graph.copy()
    return graph


def is_topo_weighted(group: dist.ProcessGroup | None = None) -> bool:
    """Whether the weights of the group's topology count."""
    return topology_of(member_of(group)).neighborhood.self_weight is not None


def in_neighbor_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """The group ranks that send to this rank in the group's topology, ascending."""
    return list(topology_of(member_of(group)).neighborhood.sources)


def out_neighbor_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """The group ranks that this rank sends to in the group's topology, ascending."""
    return list(topology_of(member_of(group)).neighborhood.destinations)


def set_machine_topology(
    topology: nx.DiGraph[int],
    is_weighted: bool = False,
    group: dist.ProcessGroup | None = None,
) -> bool:
    """Set the digraph of machines that `hierarchical_neighbor_allreduce` averages over.

    Local: no communication. Every rank of the group must set the same graph.

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
    """The topology of the group's machines; None where none was set. A copy."""
    topology = member_of(group).machine_topology
    if topology is None:
        return None
    graph: nx.DiGraph[int] = topology.graph.copy()
    return graph


def is_machine_topo_weighted(group: dist.ProcessGroup | None = None) -> bool:
    """Whether the weights of the machines' topology count."""
    topology = member_of(group).machine_topology
    return topology is not None and topology.neighborhood.self_weight is not None


def in_neighbor_machine_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """The machines that send to this one, ascending; none where no topology was set."""
    topology = member_of(group).machine_topology
    return list(topology.neighborhood.sources) if topology else []


def out_neighbor_machine_ranks(group: dist.ProcessGroup | None = None) -> list[int]:
    """The machines that this one sends to, ascending; none where no topology was set."""
    topology = member_of(group).machine_topology
    return list(topology.neighborhood.destinations) if topology else []


def topology_of(member: GroupState) -> Topology:
    """What was set, or the default."""
    if member.topology is None:
        set_topology(group=member.group)
    assert member.topology is not None  # noqa: S101
    return member.topology


def require_alike(member: GroupState, what: str) -> None:
    """Raise ArgumentError unless all machines have as many ranks."""
    if not member.machines.are_alike:
        raise ArgumentError(
            f"{member.who} {what}: the machines have ranks {member.machines.all}, which must be as "
            "many on each"
        )


def _edges_over(
    member: GroupState, near: Neighborhood, rank_of: Callable[[int], int] = lambda node: node
) -> Edges:
    """`rank_of`: the group rank that a node stands for."""
    destinations = [(rank_of(node), 1.0) for node in near.destinations]
    if near.self_weight is None or near.source_weights is None:
        # Sum, then divide: exact where all are equal.
        sources = [(rank_of(node), 1.0) for node in near.sources]
        return member.backend.edges(1.0, sources, destinations, len(sources) + 1.0)
    sources = [(rank_of(node), weight) for node, weight in sorted(near.source_weights.items())]
    return member.backend.edges(near.self_weight, sources, destinations, 1.0)
