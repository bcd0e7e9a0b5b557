"""This module makes edges of the lists that operators of torch.ops.bluefog take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.argument_checker import ArgumentChecker
from bluefog_pg.topology.edges import (
    edges_for_allreduce,
    edges_for_gather,
    edges_for_gossip,
    edges_for_hierarchical_allreduce,
)

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg._C import Edges
    from bluefog_pg._core.group_state import GroupState

    Numbers = Sequence[float] | None
    Ranks = Sequence[int] | None


def _mapping(check: ArgumentChecker, ranks: Ranks, weights: Numbers) -> dict[int, float] | None:
    """Return weights by rank, which are 1 if they are left out; None, if both are."""
    if ranks is None and weights is None:
        return None
    ranks = ranks or []
    weights = [1.0] * len(ranks) if weights is None else weights
    mapping = dict(zip(ranks, weights, strict=False))
    if not len(mapping) == len(ranks) == len(weights):
        check.fail(f"expected weights of different ranks, got {weights} and {ranks}")
    return mapping


def _for_allreduce(
    member: GroupState,
    op: str,
    tensors: Sequence[Tensor],
    self_weight: float | None,
    src_ranks: Ranks,
    src_weights: Numbers,
    dst_ranks: Ranks,
    dst_weights: Numbers,
) -> Edges:
    check, tensor = ArgumentChecker(member, op, tensors[0]), tensors[0]
    sources = _mapping(check, src_ranks, src_weights)
    destinations = _mapping(check, dst_ranks, dst_weights)
    if op == "hierarchical_neighbor_allreduce":
        return edges_for_hierarchical_allreduce(member, tensor, self_weight, sources, destinations)
    return edges_for_allreduce(member, op, tensor, self_weight, sources, destinations)


def _for_gossip(
    member: GroupState,
    _op: str,
    tensors: Sequence[Tensor],
    self_weight: float | None,
    src_ranks: Sequence[int],
    src_weights: Numbers,
    *_: None,
) -> Edges:
    (target,) = src_ranks
    (pair_weight,) = src_weights or (None,)
    return edges_for_gossip(member, tensors[0], target, self_weight, pair_weight)


def _for_gather(
    member: GroupState,
    op: str,
    tensors: Sequence[Tensor],
    _self_weight: None,
    src_ranks: Ranks,
    _src_weights: None,
    dst_ranks: Ranks,
    _dst_weights: None,
) -> Edges:
    return edges_for_gather(member, op, tensors, src_ranks, dst_ranks)


_FINDERS: dict[str, Callable[..., Edges]] = {
    "neighbor_allreduce": _for_allreduce,
    "neighbor_allgather": _for_gather,
    "neighbor_alltoall": _for_gather,
    "pair_gossip": _for_gossip,
    "hierarchical_neighbor_allreduce": _for_allreduce,
}


def edges_for_operator(
    op: str, member: GroupState, tensors: Sequence[Tensor], *asked: Any
) -> Edges:
    """Return the edges of an operator's call.

    Args:
        op, member, tensors: the call.
        asked: self_weight, src_ranks, src_weights, dst_ranks, dst_weights; None where left out.

    Raises:
        ValueError: the arguments do not go together.
    """
    return _FINDERS[op](member, op, tensors, *asked)
