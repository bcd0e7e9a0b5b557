"""This module makes the calls of the backend that the collectives and their operators share."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg._core.argument_checker import described
from bluefog_pg._core.errors import ArgumentError
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.loader import load
from bluefog_pg._core.machine_backend import machine_backend_of
from bluefog_pg._core.operators import alike
from bluefog_pg._core.tags import tag_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from bluefog_pg._core.group_state import GroupState

# An allgather is made of messages of neighbor operations, which match by this tag. No other
# operation has this name.
_ALLGATHER = tag_of("bluefog_pg.collectives.allgather")


def member_for(op: str, tensor: object, group: dist.ProcessGroup | None) -> GroupState:
    member = member_of(group)
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{member.who} {op}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.layout != torch.strided:  # The backend checks the device itself.
        raise ValueError(
            f"{member.who} {op} {described(tensor)}: the tensor must be dense, not {tensor.layout}"
        )
    return member


def require_mean(member: GroupState, op: str, tensor: Tensor, average: bool) -> None:
    if average and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ArgumentError(
            f"{member.who} {op} {described(tensor)}: only tensors of a type with fractions have "
            "an average; average=False gives the sum"
        )


def root_of(member: GroupState, op: str, tensor: Tensor, root_rank: Any) -> int:
    try:
        root = operator.index(root_rank)
    except TypeError:
        raise TypeError(
            f"{member.who} {op} {described(tensor)}: root_rank must be a rank, not {root_rank!r}"
        ) from None
    if not 0 <= root < member.size:
        raise ValueError(
            f"{member.who} {op} {described(tensor)}: root_rank is {root}; "
            f"the group ranks are 0 to {member.size - 1}"
        )
    return root


def sum_in_place(
    member: GroupState, tensor: Tensor, average: bool, is_local: bool, async_op: bool
) -> Any:
    """Sum or average a tensor in place, over the machine's ranks alone if `is_local`.

    Returns:
        The Work with async_op; otherwise None, after the end of the operation.
    """
    backend: Any = machine_backend_of(member) if is_local else member.backend
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp(dist.ReduceOp.AVG if average else dist.ReduceOp.SUM)
    options.asyncOp = async_op
    return _begun(backend.allreduce([tensor], options), async_op)


def broadcast_in_place(member: GroupState, tensor: Tensor, root_rank: int, async_op: bool) -> Any:
    """Replace a tensor by the root's.

    Returns:
        The Work with async_op; otherwise None, after the end of the operation.
    """
    backend: Any = member.backend
    options = dist.BroadcastOptions()
    options.rootRank = root_rank
    options.asyncOp = async_op
    return _begun(backend.broadcast([tensor], options), async_op)


def rows_of_others(
    member: GroupState,
    tensor: Tensor,
    async_op: bool,
    tag: int = _ALLGATHER,
    ranks: Iterable[int] | None = None,
) -> Any:
    """Return the tensors of all other ranks, in the order of the ranks.

    They travel as messages between neighbors do. An all_gather would have to know how many rows
    each rank has, and would first have to ask for that and wait for the answers.

    Args:
        member, tensor: the group, and this rank's tensor of shape (rows, ...).
        async_op: whether to return a Work at once.
        tag: the tag by which calls match.
        ranks: the group ranks that take part; None, for all of the group.

    Returns:
        A list of tensors; or the Work, whose result() is that list.
    """
    all_ranks = range(member.size) if ranks is None else ranks
    others = [(rank, 1.0) for rank in all_ranks if rank != member.rank]
    edges = member.backend.edges(1.0, others, others, 1.0)
    # The backend cannot tell the size of a row from a tensor without elements.
    like = tensor if tensor.dim() == 0 or len(tensor) else tensor.new_empty((1, *tensor.shape[1:]))
    backend: Any = member.backend
    return backend.allgather_in_parts(like, [tensor] * len(others), edges, tag, async_op)


def with_own(member: GroupState, tensor: Tensor, others: list[Tensor]) -> list[Tensor]:
    """Return all ranks' tensors, in the order of the ranks: the own one and the others'."""
    return [*others[: member.rank], tensor, *others[member.rank :]]


def copy_of(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def place_for(member: GroupState, tensor: Tensor, root_rank: int) -> Tensor:
    """Return a tensor for a broadcast: a copy of `tensor` on the root, an empty one elsewhere."""
    return copy_of(tensor) if member.rank == root_rank else alike(tensor.detach())


def complete(work: dist.Work | None) -> None:
    """Wait for a Work, if there is one.

    NCCL gives none for an operation that is not asynchronous, since it runs in the current stream.
    """
    if work is not None:
        work.wait()


def _begun(work: dist.Work | None, async_op: bool) -> dist.Work | None:
    if not async_op:
        complete(work)
        return None
    module = load()
    if not isinstance(work, module.WorkBluefog):
        work = module.BatchWork([work])  # c10d has deprecated result() of accelerators' Works.
    return work
