"""This module turns weights and ranks, in all forms that users give, into the backend's edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.argument_checker import ArgumentChecker
from bluefog_pg._core.edge_cache import key_of, remember
from bluefog_pg._core.errors import ArgumentError
from bluefog_pg.topology.group_topology import require_alike, topology_of

if TYPE_CHECKING:
    import torch

    from bluefog_pg._C import Edges
    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg._core.neighborhood import Neighborhood

    SrcWeights = Mapping[int, float]
    DstWeights = Mapping[int, float] | Iterable[int]
    Tensors = torch.Tensor | Sequence[torch.Tensor]
    Weighted = list[tuple[int, float]]
    Divided = tuple[float, Weighted, Weighted, float]


def edges_for_allreduce(
    member: GroupState,
    op: str,
    tensors: Tensors,
    self_weight: float | None,
    src_weights: SrcWeights | None,
    dst_weights: DstWeights | None,
) -> Edges:
    """Return the edges of a call that may name weights and neighbors; raise ValueError if bad."""
    topology = member.topology or topology_of(member)
    if self_weight is None and src_weights is None and dst_weights is None:
        return topology.edges
    key = key_of(self_weight, src_weights, dst_weights)
    if edges := topology.edge_cache.get(key):
        return edges
    check, near = ArgumentChecker(member, op, tensors), topology.neighborhood
    edges = _weighted(check, near, self_weight, src_weights, dst_weights)
    return remember(topology.edge_cache, key, edges)


def edges_for_gather(
    member: GroupState,
    op: str,
    tensors: Tensors,
    src_ranks: Iterable[int] | None,
    dst_ranks: Iterable[int] | None,
) -> Edges:
    """Return the edges of a call without weights; sources are in the order given, or ascending."""
    if src_ranks is None and dst_ranks is None:
        return (member.topology or topology_of(member)).edges
    key = key_of(src_ranks, dst_ranks)
    if edges := member.edge_cache.get(key):
        return edges
    check = ArgumentChecker(member, op, tensors)
    if src_ranks is None or dst_ranks is None:
        check.fail("src_ranks and dst_ranks must be given together")
    sources = [(rank, 1.0) for rank in check.ranks("src_ranks", src_ranks)]
    destinations = [(rank, 1.0) for rank in check.ranks("dst_ranks", dst_ranks)]
    return remember(member.edge_cache, key, member.backend.edges(1.0, sources, destinations, 1.0))


def edges_for_gossip(
    member: GroupState,
    tensors: Tensors,
    target_rank: int,
    self_weight: float | None,
    pair_weight: float | None,
) -> Edges:
    """Return the edges between this rank and another one."""
    key = key_of(target_rank, self_weight, pair_weight)
    if edges := member.edge_cache.get(key):
        return edges
    check = ArgumentChecker(member, "pair_gossip", tensors)
    (target,) = check.ranks("target_rank", [target_rank])
    own, other, divisor = 1.0, 1.0, 2.0
    if self_weight is not None or pair_weight is not None:
        if self_weight is None or pair_weight is None:
            check.fail("self_weight and pair_weight must be given together")
        own, divisor = check.number("self_weight", self_weight), 1.0
        other = check.number("pair_weight", pair_weight)
    edges = member.backend.edges(own, [(target, other)], [(target, 1.0)], divisor)
    return remember(member.edge_cache, key, edges)


def edges_for_hierarchical_allreduce(
    member: GroupState,
    tensor: torch.Tensor,
    self_weight: float | None,
    src_weights: SrcWeights | None,
    dst_weights: DstWeights | None,
) -> Edges:
    """Return the edges to the ranks that have this rank's place on other machines.

    Raises:
        ArgumentError: machines have one rank, or unequal numbers of ranks.
        RuntimeError: neither weights nor a topology of the machines are there.
        ValueError: weights are bad, or not all three are given.
    """
    op = "hierarchical_neighbor_allreduce"
    require_alike(member, op)
    machines = member.machines
    if len(machines.locals) == 1 and member.size > 1:
        raise ArgumentError(
            f"{member.who} {op}: machines of one rank have nothing to average inside; "
            "use neighbor_allreduce"
        )
    topology = member.machine_topology
    if self_weight is None and src_weights is None and dst_weights is None:
        if topology is None and member.size == 1:
            return member.backend.edges(1.0, [], [], 1.0)
        if topology is None:
            raise RuntimeError(
                f"{member.who} {op}: no topology; call set_machine_topology first, or give weights"
            )
        return topology.edges
    check = ArgumentChecker(
        member, op, tensor, nodes=(len(machines.all), machines.machine_rank, "machine")
    )
    if self_weight is None or src_weights is None or dst_weights is None:
        check.fail(
            "self_weight, src_machine_weights and dst_machine_weights must be given together"
        )
    sources = check.weights("src_machine_weights", src_weights)
    destinations = check.destinations("dst_machine_weights", dst_weights)
    if topology is not None:
        near = topology.neighborhood
        check.require_neighbors("src_machine_weights", sources, "in-neighbors", near.sources)
        check.require_neighbors(
            "dst_machine_weights", destinations, "out-neighbors", near.destinations
        )
    own = check.number("self_weight", self_weight)
    return member.backend.edges(
        own,
        [(machines.counterpart(node), weight) for node, weight in sorted(sources.items())],
        [(machines.counterpart(node), weight) for node, weight in sorted(destinations.items())],
        1.0,
    )


def _weighted(
    check: ArgumentChecker,
    near: Neighborhood,
    self_weight: Any,
    src_weights: Any,
    dst_weights: Any,
) -> Edges:
    if (self_weight is None) != (src_weights is None):
        check.fail("self_weight and src_weights must be given together")
    if src_weights is None:
        check.fail("dst_weights needs self_weight and src_weights")
    own = check.number("self_weight", self_weight)
    weights = check.weights("src_weights", src_weights)
    if dst_weights is not None:
        to = sorted(check.destinations("dst_weights", dst_weights).items())
        return check.member.backend.edges(*_divided(own, sorted(weights.items()), to))
    check.require_neighbors(
        "src_weights",
        weights,
        "in-neighbors",
        near.sources,
        "; give dst_weights for a dynamic graph",
    )
    sources = [(rank, weights.get(rank, 0.0)) for rank in near.sources]
    destinations = [(rank, 1.0) for rank in near.destinations]
    return check.member.backend.edges(*_divided(own, sources, destinations))


def _divided(own: float, sources: Weighted, destinations: Weighted) -> Divided:
    """Return weights with a divisor: equal ones that sum to 1 become a sum that is divided.

    Three times the float32 next to 1/3 is more than 1, so averages would grow step by step.
    """
    count = len(sources) + 1
    if own == 1 / count and all(weight == own for _, weight in sources):
        return 1.0, [(rank, 1.0) for rank, _ in sources], destinations, float(count)
    return own, sources, destinations, 1.0
