"""This module has `pair_gossip`, which averages with one rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, overload

import torch

from bluefog_pg import functional
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.refused import count_refused_pair
from bluefog_pg._core.tags import named_tag
from bluefog_pg.neighbors._tensors import list_of
from bluefog_pg.topology.edges import edges_for_gossip

if TYPE_CHECKING:
    import torch.distributed as dist


@overload
def pair_gossip(
    tensor: torch.Tensor,
    target_rank: int,
    *,
    self_weight: float | None = ...,
    pair_weight: float | None = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def pair_gossip(
    tensor: Sequence[torch.Tensor],
    target_rank: int,
    *,
    self_weight: float | None = ...,
    pair_weight: float | None = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> list[torch.Tensor]: ...
@overload
def pair_gossip(
    tensor: torch.Tensor | Sequence[torch.Tensor],
    target_rank: int,
    *,
    self_weight: float | None = ...,
    pair_weight: float | None = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def pair_gossip(
    tensor: torch.Tensor | Sequence[torch.Tensor],
    target_rank: int,
    *,
    self_weight: float | None = None,
    pair_weight: float | None = None,
    name: str | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> torch.Tensor | list[torch.Tensor] | dist.Work:
    """Average with one rank, which calls this with ours: x <- self_weight x + pair_weight y.

    The call is differentiable, as `neighbor_allreduce` is. BlueFog has this function.

    Args:
        tensor: as in `neighbor_allreduce`, also a list.
        target_rank: the group rank to average with, in the topology or not.
        self_weight, pair_weight: both, or none for the mean of the two.
        name, group, async_op: as in `neighbor_allreduce`.

    Returns:
        A new tensor shaped like `tensor`, or a list of them, or the Work.

    Raises:
        ValueError: one of the weights alone; a rank that is none, or this one.
        Others as `neighbor_allreduce`.

    Example:
        >>> partner = bf.size() - 1 - bf.rank()
        >>> bf.pair_gossip(torch.full((2,), float(bf.rank())), partner).tolist()
        [1.5, 1.5]
    """
    member = member_of(group)
    try:
        if not isinstance(tensor, (torch.Tensor, list)):
            tensor = list_of(member, "pair_gossip", tensor)
        edges = edges_for_gossip(member, tensor, target_rank, self_weight, pair_weight)
        tag = 0 if name is None else named_tag(member, "pair_gossip", name)
    except BaseException:
        count_refused_pair(member, tensor, target_rank, name)
        raise
    done = member.backend.pair_gossip(tensor, edges, tag, async_op)
    if done is not None:
        return done
    if isinstance(tensor, torch.Tensor):
        return functional.sum_of("pair_gossip", tensor, edges, tag, member)
    return functional.sums_of("pair_gossip", tensor, edges, tag, member)
