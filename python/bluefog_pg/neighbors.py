"""Operations between neighbours in a digraph."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from bluefog_pg import _agreement, _edges, functional
from bluefog_pg._call import Call
from bluefog_pg._member import Member, member_of

if TYPE_CHECKING:
    import torch.distributed as dist


Tensors = Sequence[torch.Tensor]


@overload
def neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: float | None = ...,
    src_weights: Mapping[int, float] | None = ...,
    dst_weights: Mapping[int, float] | Sequence[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> torch.Tensor: ...
@overload
def neighbor_allreduce(
    tensor: Tensors,
    *,
    self_weight: float | None = ...,
    src_weights: Mapping[int, float] | None = ...,
    dst_weights: Mapping[int, float] | Sequence[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> list[torch.Tensor]: ...
@overload
def neighbor_allreduce(
    tensor: torch.Tensor | Tensors,
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
    tensor: torch.Tensor | Tensors,
    *,
    self_weight: float | None = None,
    src_weights: Mapping[int, float] | None = None,
    dst_weights: Mapping[int, float] | Sequence[int] | None = None,
    enable_topo_check: bool = False,
    name: str | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> torch.Tensor | list[torch.Tensor] | dist.Work:
    """Average `tensor` with the in-neighbours': x_i <- w_ii x_i + sum_j w_ij x_j.

    With no weights, over the group's topology (see `set_topology`; exponential-2 by default).
    Operations between the same two ranks match in the order they are issued. The sum is formed in
    the order of the ranks, in float32 for half types: equal inputs give equal bits.

    Differentiable: the gradient is averaged over the reversed edges, so every rank has to go
    backward through it. (Not with async_op.)

    Args:
        tensor: any shape, floating or complex, on the CPU, the same shape on every rank that
            meets. Unchanged. Or a list of such tensors, which travel as one.
        self_weight: w_ii. Needs `src_weights`.
        src_weights: {group rank j: w_ij}. Without `dst_weights` the ranks must be in-neighbours in
            the topology; the data of those that are left out is ignored. Needs `self_weight`.
        dst_weights: makes the graph of this call dynamic: this rank sends to these group ranks and
            receives from those of `src_weights`, whatever the topology says; the ranks must agree
            edge by edge. A mapping scales what is sent to each; a list is a mapping to 1.
        enable_topo_check: first ask all ranks of the group whether they agree on the edges of this
            call. Then each of them must make it; for finding an error, it costs an all_gather.
        name: calls match by edge, name and order; one name must not be in flight twice.
        group: the process group; None, the default one.
        async_op: return a Work at once; after its wait() the average is `work.result()[0]`, or, of
            a list, `work.result()`.

    Weights are taken as they are: they need not sum to 1.

    Returns:
        A new tensor shaped like `tensor`, or a list of them, or the Work.

    Raises:
        ValueError: weights that do not go together, that are not finite, or for ranks that are no
            neighbours; a tensor that is not dense on the CPU, or of a type without fractions; with
            `enable_topo_check`, on every rank: ranks that do not agree.
        TypeError: no tensor; a group of another backend.
        Mismatch: a neighbour that sends to this rank called with another number of elements or
            dtype. Who only sent a small tensor to such a one hears of it at its next call.
        PeerFailed: a neighbour that is needed died, or left without sending to this rank.
        CollectiveTimeout: a neighbour sent nothing within the group's timeout: it is late, or it
            does not list this rank in its `dst_weights`.
    """
    member = member_of(group)
    edges = _edges.averaging(
        member, "neighbor_allreduce", tensor, self_weight, src_weights, dst_weights
    )
    if enable_topo_check and dst_weights is not None:
        _agreement.require(member, "neighbor_allreduce", edges)
    tag = 0 if name is None else tag_of(name)
    if isinstance(tensor, torch.Tensor):
        if tensor.requires_grad and not async_op and torch.is_grad_enabled():
            return functional.sum_of("neighbor_allreduce", [tensor], edges, tag, member)[0]
        return member.backend.neighbor_allreduce(tensor, edges, tag, async_op)
    tensors = _list_of(member, "neighbor_allreduce", tensor)
    if not async_op and torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return functional.sum_of("neighbor_allreduce", tensors, edges, tag, member)
    return member.backend.neighbor_allreduce_of_many(tensors, edges, tag, async_op)


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
    """The in-neighbours' tensors one after the other, along the first dimension; not the own one.

    Differentiable, as `neighbor_allreduce` is.

    Args:
        tensor: (rows, ...), of any type; ranks may have different numbers of rows.
        src_ranks: the group ranks to receive from, in the order of the result. With `dst_ranks`,
            of this call alone, whatever the topology says; the ranks must agree edge by edge.
            None: the topology's in-neighbours, ascending.
        dst_ranks: the group ranks to send to. Needs `src_ranks`.
        enable_topo_check, name, group, async_op: as in `neighbor_allreduce`.

    Returns:
        A new tensor (sum of the sources' rows, ...), or the Work.

    Raises:
        ValueError: one of `src_ranks` and `dst_ranks` alone; ranks that are none, named twice, or
            this rank; a tensor without dimensions, or whose rows have no elements.
        Others as `neighbor_allreduce`.
    """
    member = member_of(group)
    edges = _edges.gathering(member, "neighbor_allgather", tensor, src_ranks, dst_ranks)
    if enable_topo_check and src_ranks is not None:
        _agreement.require(member, "neighbor_allgather", edges)
    tag = 0 if name is None else tag_of(name)
    if tensor.requires_grad and not async_op and torch.is_grad_enabled():
        return functional.rows_of(tensor, edges, tag, member)
    return member.backend.neighbor_allgather(tensor, edges, tag, async_op)


@overload
def neighbor_alltoall(
    tensor: torch.Tensor | Tensors,
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
    tensor: torch.Tensor | Tensors,
    *,
    src_ranks: Iterable[int] | None = ...,
    dst_ranks: Iterable[int] | None = ...,
    enable_topo_check: bool = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def neighbor_alltoall(
    tensor: torch.Tensor | Tensors,
    *,
    src_ranks: Iterable[int] | None = None,
    dst_ranks: Iterable[int] | None = None,
    enable_topo_check: bool = False,
    name: str | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> list[torch.Tensor] | dist.Work:
    """Send each out-neighbour a tensor of its own, and receive one from each in-neighbour.

    Differentiable, as `neighbor_allreduce` is.

    Args:
        tensor: a tensor for each out-neighbour, in their order: (rows, ...) of one type, where the
            number of rows may differ. Or one tensor, to be cut into as many parts of equal size.
        src_ranks, dst_ranks: as in `neighbor_allgather`.
        enable_topo_check, name, group, async_op: as in `neighbor_allreduce`.

    Returns:
        A list of new tensors, one for each in-neighbour, in their order (of the topology's,
        ascending); or the Work, whose `result()` is that.

    Raises:
        ValueError: another number of tensors than of out-neighbours; one tensor whose rows cannot
            be cut so.
        Others as `neighbor_allgather`.
    """
    member = member_of(group)
    edges = _edges.gathering(member, "neighbor_alltoall", tensor, src_ranks, dst_ranks)
    if enable_topo_check and src_ranks is not None:
        _agreement.require(member, "neighbor_alltoall", edges)
    tag = 0 if name is None else tag_of(name)
    like, parts = _parts(member, tensor, len(edges.destinations))
    if not async_op and torch.is_grad_enabled() and any(part.requires_grad for part in parts):
        return functional.parts_of(like, parts, edges, tag, member)
    return member.backend.neighbor_alltoall(like, parts, edges, tag, async_op)


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
    tensor: torch.Tensor,
    target_rank: int,
    *,
    self_weight: float | None = ...,
    pair_weight: float | None = ...,
    name: str | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def pair_gossip(
    tensor: torch.Tensor,
    target_rank: int,
    *,
    self_weight: float | None = None,
    pair_weight: float | None = None,
    name: str | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> torch.Tensor | dist.Work:
    """Average with one rank, which calls this with ours: x <- self_weight x + pair_weight y.

    Differentiable, as `neighbor_allreduce` is.

    Args:
        tensor: as in `neighbor_allreduce`.
        target_rank: the group rank to average with, in the topology or not.
        self_weight, pair_weight: both, or none for the mean of the two.
        name, group, async_op: as in `neighbor_allreduce`.

    Returns:
        A new tensor shaped like `tensor`, or the Work.

    Raises:
        ValueError: one of the weights alone; a rank that is none, or this one.
        Others as `neighbor_allreduce`.
    """
    member = member_of(group)
    edges = _edges.gossiping(member, tensor, target_rank, self_weight, pair_weight)
    tag = 0 if name is None else tag_of(name)
    if tensor.requires_grad and not async_op and torch.is_grad_enabled():
        return functional.sum_of("pair_gossip", [tensor], edges, tag, member)[0]
    return member.backend.pair_gossip(tensor, edges, tag, async_op)


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
    it with the ranks of its place on neighbouring machines, and hands it out: what crosses between
    two machines does so once. Ranks of one machine get equal bits. Half types are rounded after
    each of the two sums.

    Differentiable, as `neighbor_allreduce` is.

    Args:
        tensor: as in `neighbor_allreduce`.
        self_weight, src_machine_weights, dst_machine_weights: as there, for machines; all three or
            none, alike on all ranks of a machine. The machines must be neighbours in the
            topology.
        enable_topo_check, name, group, async_op: as in `neighbor_allreduce`.

    Returns:
        A new tensor shaped like `tensor`, or the Work.

    Raises:
        RuntimeError: no topology was set by `set_machine_topology`.
        ArgumentError: a machine has one rank alone, or they have different numbers.
        ValueError: not all three of the weights; machines that are no neighbours.
        Others as `neighbor_allreduce`.
    """
    member = member_of(group)
    edges = _edges.between_machines(
        member, tensor, self_weight, src_machine_weights, dst_machine_weights
    )
    if enable_topo_check and dst_machine_weights is not None:
        _agreement.require(member, "hierarchical_neighbor_allreduce", edges)
    tag = 0 if name is None else tag_of(name)
    if tensor.requires_grad and not async_op and torch.is_grad_enabled():
        return functional.mean_of_machines(tensor, edges, tag, member)
    return member.backend.hierarchical_neighbor_allreduce(
        tensor, member.machines.locals, edges, tag, async_op
    )


@lru_cache(maxsize=4096)
def tag_of(name: str) -> int:
    """The number by which operations of that name match: a multiple of 4, never 0."""
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little")
    return (number + 1) * 4


def _list_of(member: Member, op: str, tensors: Any) -> list[torch.Tensor]:
    listed = list(tensors) if isinstance(tensors, Iterable) else [tensors]
    for tensor in listed:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"{member.who} {op}: expected a torch.Tensor or a list of them, "
                f"got {type(tensor).__name__}"
            )
    return listed


def _parts(
    member: Member, tensor: torch.Tensor | Tensors, count: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A tensor of the type and rows of all parts, and the parts."""
    if isinstance(tensor, torch.Tensor):
        if tensor.dim() == 0 or (count and tensor.size(0) % count):
            Call(member, "neighbor_alltoall", tensor).fail(
                f"one tensor must have rows for {count} out-neighbours in equal parts"
            )
        return tensor, list(tensor.tensor_split(count)) if count else []
    parts = _list_of(member, "neighbor_alltoall", tensor)
    if not parts:
        Call(member, "neighbor_alltoall", parts).fail(
            "an empty list does not say of what type and shape; pass torch.empty(0, ...)"
        )
    return parts[0], parts
