"""This module has `neighbor_allgather`, which joins the neighbors' tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, overload

import torch

from bluefog_pg import functional
from bluefog_pg._core import group_check
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.operators import keeps_graph
from bluefog_pg._core.refused import count_refused
from bluefog_pg._core.tags import named_tag
from bluefog_pg.neighbors._tensors import require_tensor
from bluefog_pg.topology.edges import edges_for_gather

if TYPE_CHECKING:
    import torch.distributed as dist


@overload
def neighbor_allgather(
    tensor: torch.Tensor,
    *,
    src_ranks: Iterable[int] | None = ...,
    dst_ranks: Iterable[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def neighbor_allgather(
    tensor: torch.Tensor,
    *,
    src_ranks: Iterable[int] | None = ...,
    dst_ranks: Iterable[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def neighbor_allgather(
    tensor: torch.Tensor,
    *,
    src_ranks: Iterable[int] | None = None,
    dst_ranks: Iterable[int] | None = None,
    enable_topo_check: bool = False,
    name: str | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> torch.Tensor | dist.Work:
    """Return the in-neighbors' tensors one after the other, along the first dimension.

    This rank's own tensor is not among them. The call is differentiable, as `neighbor_allreduce`
    is. BlueFog has this function.

    Args:
        tensor: (rows, ...), of any type; ranks may have different numbers of rows.
        src_ranks: the group ranks to receive from, in the order of the result. With `dst_ranks`
            they are the edges of this call alone, whatever the topology says; the ranks must agree
            edge by edge. None: the topology's in-neighbors, ascending.
        dst_ranks: the group ranks to send to. Needs `src_ranks`.
        enable_topo_check, name, group, async_op: as in `neighbor_allreduce`.

    Returns:
        A new tensor (sum of the sources' rows, ...), or the Work.

    Raises:
        ValueError: one of `src_ranks` and `dst_ranks` alone; ranks that are none, named twice, or
            this rank; a tensor without dimensions.
        Others as `neighbor_allreduce`.

    Example:
        >>> x = torch.tensor([bf.rank()])
        >>> bf.neighbor_allgather(x).tolist() == bf.in_neighbor_ranks()
        True
    """
    member = member_of(group)
    try:
        require_tensor(member, "neighbor_allgather", tensor)
        edges = edges_for_gather(member, "neighbor_allgather", tensor, src_ranks, dst_ranks)
        if enable_topo_check and src_ranks is not None:
            group_check.require(member, "neighbor_allgather", edges)
        tag = 0 if name is None else named_tag(member, "neighbor_allgather", name)
    except BaseException:
        count_refused(member, tensor, name)
        raise
    if tensor.requires_grad and keeps_graph(async_op):
        return functional.rows_of(tensor, edges, tag, member)
    return member.backend.neighbor_allgather(tensor, edges, tag, async_op)
