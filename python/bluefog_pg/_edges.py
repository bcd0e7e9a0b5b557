"""Whom a call averages with, and how: every form that users give, as the backend takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg._call import Call
from bluefog_pg._errors import ArgumentError
from bluefog_pg._known import key_of, remember
from bluefog_pg.topology import require_alike, topology_of

if TYPE_CHECKING:
    import torch

    from bluefog_pg._C import Edges
    from bluefog_pg._member import Member
    from bluefog_pg._topology import Neighborhood

    SrcWeights = Mapping[int, float]
    DstWeights = Mapping[int, float] | Iterable[int]
    Tensors = torch.Tensor | Sequence[torch.Tensor]
    Weighted = list[tuple[int, float]]
    Divided = tuple[float, Weighted, Weighted, float]


def averaging(
    member: Member,
    op: str,
    tensors: Tensors,
    self_weight: float | None,
    src_weights: SrcWeights | None,
    dst_weights: DstWeights | None,
) -> Edges:
    """Of a call that may name weights and neighbours."""
    topology = member.topology or topology_of(member)
    if self_weight is None and src_weights is None and dst_weights is None:
        return topology.edges
    key = key_of(self_weight, src_weights, dst_weights)
    if edges := topology.known.get(key):
        return edges
    call, near = Call(member, op, tensors), topology.neighborhood
    edges = _weighted(call, near, self_weight, src_weights, dst_weights)
    return remember(topology.known, key, edges)


def gathering(
    member: Member,
    op: str,
    tensors: Tensors,
    src_ranks: Iterable[int] | None,
    dst_ranks: Iterable[int] | None,
) -> Edges:
    """Of a call that weighs nothing. Sources in the order given, or ascending."""
    if src_ranks is None and dst_ranks is None:
        return (member.topology or topology_of(member)).edges
    key = key_of(src_ranks, dst_ranks)
    if edges := member.known.get(key):
        return edges
    call = Call(member, op, tensors)
    if src_ranks is None or dst_ranks is None:
        call.fail("src_ranks and dst_ranks must be given together")
    sources = [(rank, 1.0) for rank in call.ranks("src_ranks", src_ranks)]
    destinations = [(rank, 1.0) for rank in call.ranks("dst_ranks", dst_ranks)]
    return remember(member.known, key, member.backend.edges(1.0, sources, destinations, 1.0))


def gossiping(
    member: Member,
    tensors: Tensors,
    target_rank: int,
    self_weight: float | None,
    pair_weight: float | None,
) -> Edges:
    """Between two ranks."""
    key = key_of(target_rank, self_weight, pair_weight)
    if edges := member.known.get(key):
        return edges
    call = Call(member, "pair_gossip", tensors)
    (target,) = call.ranks("target_rank", [target_rank])
    own, other, divisor = 1.0, 1.0, 2.0
    if self_weight is not None or pair_weight is not None:
        if self_weight is None or pair_weight is None:
            call.fail("self_weight and pair_weight must be given together")
        own, divisor = call.number("self_weight", self_weight), 1.0
        other = call.number("pair_weight", pair_weight)
    edges = member.backend.edges(own, [(target, other)], [(target, 1.0)], divisor)
    return remember(member.known, key, edges)


def between_machines(
    member: Member,
    tensor: torch.Tensor,
    self_weight: float | None,
    src_weights: SrcWeights | None,
    dst_weights: DstWeights | None,
) -> Edges:
    """With the ranks on other machines that have this one's place there."""
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
    call = Call(member, op, tensor, nodes=(len(machines.all), machines.machine_rank, "machine"))
    if self_weight is None or src_weights is None or dst_weights is None:
        call.fail("self_weight, src_machine_weights and dst_machine_weights must be given together")
    sources = call.weights("src_machine_weights", src_weights)
    destinations = call.destinations("dst_machine_weights", dst_weights)
    if topology is not None:
        near = topology.neighborhood
        call.require_neighbors("src_machine_weights", sources, "in-neighbours", near.sources)
        call.require_neighbors(
            "dst_machine_weights", destinations, "out-neighbours", near.destinations
        )
    own = call.number("self_weight", self_weight)
    return member.backend.edges(
        own,
        [(machines.counterpart(node), weight) for node, weight in sorted(sources.items())],
        [(machines.counterpart(node), weight) for node, weight in sorted(destinations.items())],
        1.0,
    )


def _weighted(
    call: Call,
    near: Neighborhood,
    self_weight: Any,
    src_weights: Any,
    dst_weights: Any,
) -> Edges:
    if (self_weight is None) != (src_weights is None):
        call.fail("self_weight and src_weights must be given together")
    if src_weights is None:
        call.fail("dst_weights needs self_weight and src_weights")
    own = call.number("self_weight", self_weight)
    weights = call.weights("src_weights", src_weights)
    if dst_weights is not None:
        to = sorted(call.destinations("dst_weights", dst_weights).items())
        return call.member.backend.edges(*_divided(own, sorted(weights.items()), to))
    call.require_neighbors(
        "src_weights",
        weights,
        "in-neighbours",
        near.sources,
        "; give dst_weights for a dynamic graph",
    )
    sources = [(rank, weights.get(rank, 0.0)) for rank in near.sources]
    destinations = [(rank, 1.0) for rank in near.destinations]
    return call.member.backend.edges(*_divided(own, sources, destinations))


def _divided(own: float, sources: Weighted, destinations: Weighted) -> Divided:
    """Take equal weights that sum to 1 for what they are, a sum that is divided by their number.

    Three times the float32 next to 1/3 is more than 1, and averages would grow step by step.
    """
    count = len(sources) + 1
    if own == 1 / count and all(weight == own for _, weight in sources):
        return 1.0, [(rank, 1.0) for rank, _ in sources], destinations, float(count)
    return own, sources, destinations, 1.0
