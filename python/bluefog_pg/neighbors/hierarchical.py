"""This module has `hierarchical_neighbor_allreduce`, which averages with neighboring machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

import torch

from bluefog_pg import functional
from bluefog_pg._core import group_check
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.operators import keeps_graph
from bluefog_pg._core.refused import count_refused
from bluefog_pg._core.tags import named_tag
from bluefog_pg.neighbors._tensors import require_tensor
from bluefog_pg.topology.edges import edges_for_hierarchical_allreduce

if TYPE_CHECKING:
    import torch.distributed as dist


@overload
def hierarchical_neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: float | None = ...,
    src_machine_weights: Mapping[int, float] | None = ...,
    dst_machine_weights: Mapping[int, float] | Sequence[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def hierarchical_neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: float | None = ...,
    src_machine_weights: Mapping[int, float] | None = ...,
    dst_machine_weights: Mapping[int, float] | Sequence[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def hierarchical_neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: float | None = None,
    src_machine_weights: Mapping[int, float] | None = None,
    dst_machine_weights: Mapping[int, float] | Sequence[int] | None = None,
    enable_topo_check: bool = False,
    name: str | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> torch.Tensor | dist.Work:
    """Average machines' means: m_k <- w_kk m_k + sum_l w_kl m_l, on every rank of machine k.

    m_k is the mean over machine k (see `world`). Each rank of a machine forms a part of that, swaps
    it with the ranks of its place on neighboring machines, and hands it out: data crosses between
    two machines once. Ranks of one machine get equal bits. Half types are rounded after each of the
    two sums. BlueFog has this function.

    The call is differentiable, as `neighbor_allreduce` is.

    Args:
        tensor: as in `neighbor_allreduce`.
        self_weight, src_machine_weights, dst_machine_weights: as there, for machines; all three or
            none, the same on all ranks of a machine. Where a topology was set, the machines must be
            neighbors in it.
        enable_topo_check: first ask all ranks of the group whether they agree on the edges, and
            those of one machine on the weights. Without it, ranks that disagree on weights give
            each part of the result other weights. It costs two small all_gathers.
        name, group, async_op: as in `neighbor_allreduce`.

    Returns:
        A new tensor shaped like `tensor`, or the Work.

    Raises:
        RuntimeError: neither are there weights nor was a topology set by `set_machine_topology`.
        ArgumentError: a machine has one rank alone, or they have different numbers.
        ValueError: not all three of the weights; machines that are no neighbors.
        Others as `neighbor_allreduce`.

    Example:
        >>> bf.set_machine_topology(bf.topology_util.RingGraph(bf.machine_size()))
        True
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.hierarchical_neighbor_allreduce(x).tolist()  # two machines of two ranks each
        [1.5, 1.5]
    """
    member = member_of(group)
    try:
        require_tensor(member, "hierarchical_neighbor_allreduce", tensor)
        edges = edges_for_hierarchical_allreduce(
            member, tensor, self_weight, src_machine_weights, dst_machine_weights
        )
        if enable_topo_check:
            group_check.require_of_machines(member, "hierarchical_neighbor_allreduce", edges)
        tag = 0 if name is None else named_tag(member, "hierarchical_neighbor_allreduce", name)
    except BaseException:
        count_refused(member, tensor, name)
        raise
    if tensor.requires_grad and keeps_graph(async_op):
        return functional.mean_of_machines(tensor, edges, tag, member)
    return member.backend.hierarchical_neighbor_allreduce(
        tensor, member.machines.locals, edges, tag, async_op
    )
