"""What `collectives` and its operators ask the backend for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg._loader import load
from bluefog_pg._machine_backend import machine_backend_of
from bluefog_pg._operators import alike
from bluefog_pg._tags import tag_of

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg._member import Member

# Its messages are those of neighbour operations, of which no other has this name.
_ALLGATHER = tag_of("bluefog_pg.collectives.allgather")


def sum_in_place(
    member: Member, tensor: Tensor, average: bool, is_local: bool, async_op: bool
) -> Any:
    """The Work, with async_op. `is_local`: of the machine's ranks alone."""
    backend: Any = machine_backend_of(member) if is_local else member.backend
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp(dist.ReduceOp.AVG if average else dist.ReduceOp.SUM)
    options.asyncOp = async_op
    return _begun(backend.allreduce([tensor], options), async_op)


def broadcast_in_place(member: Member, tensor: Tensor, root_rank: int, async_op: bool) -> Any:
    """The Work, with async_op."""
    backend: Any = member.backend
    options = dist.BroadcastOptions()
    options.rootRank = root_rank
    options.asyncOp = async_op
    return _begun(backend.broadcast([tensor], options), async_op)


def rows_of_others(member: Member, tensor: Tensor, async_op: bool) -> Any:
    """All ranks' tensors but the own one, in the order of the ranks; or the Work of that.

    They come as neighbours' do: an all_gather would have to know how many rows each has, and who
    asks for that first must wait for the answer.
    """
    others = [(rank, 1.0) for rank in range(member.size) if rank != member.rank]
    edges = member.backend.edges(1.0, others, others, 1.0)
    # Of none, the backend cannot tell the size of a row.
    like = tensor if tensor.dim() == 0 or len(tensor) else tensor.new_empty((1, *tensor.shape[1:]))
    backend: Any = member.backend
    return backend.allgather_in_parts(like, [tensor] * len(others), edges, _ALLGATHER, async_op)


def with_own(member: Member, tensor: Tensor, others: list[Tensor]) -> list[Tensor]:
    return [*others[: member.rank], tensor.detach(), *others[member.rank :]]


def copy_of(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def place_for(member: Member, tensor: Tensor, root_rank: int) -> Tensor:
    """What a broadcast writes to, or, on the root, reads."""
    return copy_of(tensor) if member.rank == root_rank else alike(tensor.detach())


def complete(work: dist.Work | None) -> None:
    """NCCL has no Work of what was not to be asynchronous: it is in the current stream."""
    if work is not None:
        work.wait()


def _begun(work: dist.Work | None, async_op: bool) -> dist.Work | None:
    if not async_op:
        complete(work)
        return None
    module = load()
    if not isinstance(work, module.WorkBluefog):
        work = module.BatchWork([work])  # c10d has deprecated the result() of an accelerator's
    return work
