"""This module has `neighbor_allreduce`, which averages with the neighbors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from torch import Tensor

from bluefog_pg import functional
from bluefog_pg._core import group_check
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.refused import count_refused
from bluefog_pg._core.tags import named_tag
from bluefog_pg.neighbors._tensors import list_of
from bluefog_pg.topology.edges import edges_for_allreduce

if TYPE_CHECKING:
    import torch.distributed as dist


@overload
def neighbor_allreduce(
    tensor: Tensor,
    *,
    self_weight: float | None = ...,
    src_weights: Mapping[int, float] | None = ...,
    dst_weights: Mapping[int, float] | Sequence[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> Tensor: ...
@overload
def neighbor_allreduce(
    tensor: Sequence[Tensor],
    *,
    self_weight: float | None = ...,
    src_weights: Mapping[int, float] | None = ...,
    dst_weights: Mapping[int, float] | Sequence[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> list[Tensor]: ...
@overload
def neighbor_allreduce(
    tensor: Tensor | Sequence[Tensor],
    *,
    self_weight: float | None = ...,
    src_weights: Mapping[int, float] | None = ...,
    dst_weights: Mapping[int, float] | Sequence[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def neighbor_allreduce(
    tensor: Tensor | Sequence[Tensor],
    *,
    self_weight: float | None = None,
    src_weights: Mapping[int, float] | None = None,
    dst_weights: Mapping[int, float] | Sequence[int] | None = None,
    enable_topo_check: bool = False,
    name: str | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> Tensor | list[Tensor] | dist.Work:
    """Average `tensor` with the in-neighbors': x_i <- w_ii x_i + sum_j w_ij x_j.

    With no weights it averages over the group's topology (see `set_topology`; exponential-2 by
    default). All ranks of the group make the same calls in the same order: call k of a rank meets
    call k of its neighbors (docs/failures.md). Any thread may make them. The sum is formed in the
    order of the ranks, this one among them, in float32 for half types: equal inputs give equal
    bits. BlueFog has this function.

    The call is differentiable: the gradient is averaged over the reversed edges, so every rank has
    to go backward through it, and `tensor` requires a gradient on all ranks or on none. With
    async_op it is not.

    Args:
        tensor: any shape, floating or complex, on the CPU or the group's accelerator, the same
            shape on every rank that meets. Unchanged. Or a list of such tensors, which travel as
            one.
        self_weight: w_ii. Needs `src_weights`.
        src_weights: {group rank j: w_ij}. Without `dst_weights` the ranks must be in-neighbors in
            the topology; the data of those that are left out is ignored. Needs `self_weight`.
        dst_weights: makes the graph of this call dynamic: this rank sends to these group ranks and
            receives from those of `src_weights`, whatever the topology says; the ranks must agree
            edge by edge, or `Mismatch` is raised. A mapping scales what is sent to each; a list is
            a mapping to 1.
        enable_topo_check: with `dst_weights`, first ask all ranks of the group whether they agree
            on the edges of this call (whether they have one topology is not asked). Then each of
            them must make it; for finding an error, it costs an all_gather.
        name: calls are counted for each name, which may be called in another order on each rank.
        group: the process group; None, the default one.
        async_op: return a Work at once; after its wait() the average is `work.result()[0]`, or, for
            a list, `work.result()`.

    Weights are taken as they are: they need not sum to 1.

    Returns:
        A new tensor shaped like `tensor`, or a list of them, or the Work. The tensors of a list
        share one memory: keep or save a few of them as `clone()`.

    Raises:
        ValueError: weights that do not go together, that are not finite, or for ranks that are no
            neighbors; a tensor that is not dense, on another device, or of a type without
            fractions; with `enable_topo_check`, on every rank: ranks that do not agree.
        TypeError: no tensor; a group of another backend.
        NotRunning: there is no default process group.
        Mismatch: a neighbor called with another number of elements or dtype, or another operation,
            or does not agree on an edge. A rank that only sent a small tensor hears of it at its
            next call.
        PeerFailed: a neighbor that is needed died, or left without sending to this rank.
        CollectiveTimeout: a neighbor sent nothing within the group's timeout: it is late, or it
            does not list this rank in its `dst_weights`.
        Where `async_op` is set, wait() raises what is no bad argument.

    Example:
        >>> x = torch.full((2,), float(bf.rank()))
        >>> for _ in range(20):
        ...     x = bf.neighbor_allreduce(x)
        >>> [round(number, 3) for number in x.tolist()]
        [1.5, 1.5]
        >>> last, following = (bf.rank() - 1) % 4, (bf.rank() + 1) % 4
        >>> y = bf.neighbor_allreduce(
        ...     torch.ones(2), self_weight=0.5, src_weights={last: 0.25}, dst_weights=[following]
        ... )
        >>> y.tolist()
        [0.75, 0.75]
    """
    member = member_of(group)
    try:
        if not isinstance(tensor, (Tensor, list)):
            tensor = list_of(member, "neighbor_allreduce", tensor)
        edges = edges_for_allreduce(
            member, "neighbor_allreduce", tensor, self_weight, src_weights, dst_weights
        )
        if enable_topo_check and dst_weights is not None:
            group_check.require(member, "neighbor_allreduce", edges)
        tag = 0 if name is None else named_tag(member, "neighbor_allreduce", name)
    except BaseException:
        count_refused(member, tensor, name)
        raise
    done = member.backend.neighbor_allreduce(tensor, edges, tag, async_op)
    if done is not None:
        return done
    if isinstance(tensor, Tensor):
        return functional.sum_of("neighbor_allreduce", tensor, edges, tag, member)
    return functional.sums_of("neighbor_allreduce", tensor, edges, tag, member)
