"""This module has `neighbor_alltoall`, which sends each neighbor a tensor of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, overload

import torch

from bluefog_pg import functional
from bluefog_pg._core import group_check
from bluefog_pg._core.argument_checker import ArgumentChecker
from bluefog_pg._core.group_state import GroupState, member_of
from bluefog_pg._core.operators import any_requires_grad, keeps_graph
from bluefog_pg._core.refused import count_refused
from bluefog_pg._core.tags import named_tag
from bluefog_pg.neighbors._tensors import list_of
from bluefog_pg.topology.edges import edges_for_gather

if TYPE_CHECKING:
    import torch.distributed as dist


@overload
def neighbor_alltoall(
    tensor: torch.Tensor | Sequence[torch.Tensor],
    *,
    src_ranks: Iterable[int] | None = ...,
    dst_ranks: Iterable[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> list[torch.Tensor]: ...
@overload
def neighbor_alltoall(
    tensor: torch.Tensor | Sequence[torch.Tensor],
    *,
    src_ranks: Iterable[int] | None = ...,
    dst_ranks: Iterable[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def neighbor_alltoall(
    tensor: torch.Tensor | Sequence[torch.Tensor],
    *,
    src_ranks: Iterable[int] | None = None,
    dst_ranks: Iterable[int] | None = None,
    enable_topo_check: bool = False,
    name: str | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> list[torch.Tensor] | dist.Work:
    """Send each out-neighbor a tensor of its own, and receive one from each in-neighbor.

    The call is differentiable, as `neighbor_allreduce` is. But a rank without in-neighbors has no
    result to go backward from, so those that it sends to must not go backward either.

    Args:
        tensor: a tensor for each out-neighbor, in their order: (rows, ...) of one type, where the
            number of rows may differ. Or one tensor, to be cut into as many parts of equal size.
        src_ranks, dst_ranks: as in `neighbor_allgather`.
        enable_topo_check, name, group, async_op: as in `neighbor_allreduce`.

    Returns:
        A list of new tensors, one for each in-neighbor, in their order (those of the topology
        ascending); or the Work, whose `result()` is that list.

    Raises:
        ValueError: another number of tensors than of out-neighbors; one tensor whose rows cannot
            be cut so.
        Others as `neighbor_allgather`.

    Example:
        >>> parts = [torch.tensor([bf.rank(), rank]) for rank in bf.out_neighbor_ranks()]
        >>> received = [part.tolist() for part in bf.neighbor_alltoall(parts)]
        >>> received == [[rank, bf.rank()] for rank in bf.in_neighbor_ranks()]
        True
    """
    member = member_of(group)
    try:
        if not isinstance(tensor, torch.Tensor):
            tensor = list_of(member, "neighbor_alltoall", tensor)
        edges = edges_for_gather(member, "neighbor_alltoall", tensor, src_ranks, dst_ranks)
        if enable_topo_check and src_ranks is not None:
            group_check.require(member, "neighbor_alltoall", edges)
        tag = 0 if name is None else named_tag(member, "neighbor_alltoall", name)
        has_edges = bool(edges.sources or edges.destinations)
        if not isinstance(tensor, torch.Tensor) and not tensor and not has_edges:
            tensor = torch.empty(0, 1)  # No other rank has to know the tensor's type.
        like, parts = _parts(member, tensor, len(edges.destinations))
    except BaseException:
        count_refused(member, tensor, name)
        raise
    if any_requires_grad((like, *parts)) and keeps_graph(async_op):
        return functional.parts_of(like, parts, edges, tag, member)
    return member.backend.neighbor_alltoall(like, parts, edges, tag, async_op)


def _parts(
    member: GroupState, tensor: torch.Tensor | list[torch.Tensor], count: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return a tensor with the type and row size of all parts, and the parts themselves."""
    if isinstance(tensor, torch.Tensor):
        if tensor.dim() == 0 or (count and tensor.size(0) % count):
            ArgumentChecker(member, "neighbor_alltoall", tensor).fail(
                f"a single tensor is cut into equal parts of its rows, one for each of the {count} "
                "out-neighbors"
            )
        return tensor, list(tensor.tensor_split(count)) if count else []
    if not tensor:
        ArgumentChecker(member, "neighbor_alltoall", tensor).fail(
            "an empty list has no type and no shape; pass torch.empty(0, ...)"
        )
    return tensor[0], tensor
