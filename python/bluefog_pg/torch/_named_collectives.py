"""This module has collectives that match by a name, in whatever order each rank begins them.

They are messages between all pairs of ranks, which match by name, edge and order. Collectives
without a name match in the order in which the ranks call them, and send less. Each function returns
the result; with `async_op`, the Work and a function that gives the result after the Work's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg import functional
from bluefog_pg._core.loader import load
from bluefog_pg._core.operators import keeps_graph
from bluefog_pg._core.tags import named_tag
from bluefog_pg.collectives import calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from bluefog_pg._C import Edges
    from bluefog_pg._core.group_state import GroupState


def allreduce(tensor: Tensor, average: bool, is_local: bool, name: str, async_op: bool) -> Any:
    """Return what `collectives.allreduce` returns, and refuse what that refuses."""
    member = calls.member_for("allreduce", tensor, None)
    calls.require_mean(member, "allreduce", tensor, average)
    keeps, tensor = _kept(tensor, async_op)
    ranks = member.machines.locals if is_local else range(member.size)
    tag = _tag(member, "allreduce", name)
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return _sum_of_integers(member, tensor, ranks, tag, async_op)
    edges = _between(member, ranks, float(len(ranks)) if average else 1.0)
    if keeps:
        return functional.sum_of("neighbor_allreduce", tensor, edges, tag, member)
    done: Any = member.backend.neighbor_allreduce(tensor, edges, tag, async_op)
    return (done, lambda: done.result()[0]) if async_op else done


def broadcast(tensor: Tensor, root_rank: int, name: str, async_op: bool) -> Any:
    """Return what `collectives.broadcast` returns.

    Raises:
        Mismatch: another rank than the root has sent its tensor, or not the root alone.
    """
    member = calls.member_for("broadcast", tensor, None)
    root = calls.root_of(member, "broadcast", tensor, root_rank)
    keeps, tensor = _kept(tensor, async_op)
    row = tensor.reshape(1, -1)
    given = row if member.rank == root else row[:0]

    def result(parts: list[Tensor]) -> Tensor:
        rows = calls.with_own(member, given, parts)
        senders = [rank for rank, part in enumerate(rows) if len(part)]
        if senders != [root]:
            raise load().Mismatch(
                f"{member.who} broadcast {name!r}: this rank names rank {root} as the root, and "
                f"{senders or 'no rank'} sent as the root"
            )
        return torch.cat(rows).view(tensor.shape)

    return _of_parts(member, given, _tag(member, "broadcast", name), keeps, async_op, result)


def allgather(tensor: Tensor, name: str, async_op: bool) -> Any:
    """Return what `collectives.allgather` returns."""
    member = calls.member_for("allgather", tensor, None)
    if tensor.dim() == 0:
        raise ValueError(f"{member.who} allgather: the tensor has no dimensions, and so no rows")
    keeps, tensor = _kept(tensor, async_op)

    def result(parts: list[Tensor]) -> Tensor:
        return torch.cat(calls.with_own(member, tensor, parts))

    return _of_parts(member, tensor, _tag(member, "allgather", name), keeps, async_op, result)


def _kept(tensor: Tensor, async_op: bool) -> tuple[bool, Tensor]:
    """Return whether to keep autograd's graph, and the tensor, or a copy if it may change."""
    if tensor.requires_grad and keeps_graph(async_op):
        return True, tensor
    return False, calls.copy_of(tensor) if async_op else tensor.detach()


def _sum_of_integers(
    member: GroupState, tensor: Tensor, ranks: Sequence[int], tag: int, async_op: bool
) -> Any:
    row = tensor.reshape(1, -1)

    def result(others: list[Tensor]) -> Tensor:
        return torch.cat([*others, row]).sum(0, dtype=tensor.dtype).view(tensor.shape)

    return _of_rows(calls.rows_of_others(member, row, async_op, tag, ranks), result, async_op)


def _of_parts(
    member: GroupState,
    tensor: Tensor,
    tag: int,
    keeps: bool,
    async_op: bool,
    result: Callable[[list[Tensor]], Tensor],
) -> Any:
    """Return what `result` makes of the other ranks' tensors, in the order of the ranks."""
    if not keeps:
        return _of_rows(calls.rows_of_others(member, tensor, async_op, tag), result, async_op)
    edges = _between(member, range(member.size), 1.0)
    return result(functional.parts_of_rows(tensor, edges, tag, member))


def _of_rows(others: Any, result: Callable[[list[Tensor]], Tensor], async_op: bool) -> Any:
    return (others, lambda: result(others.result())) if async_op else result(others)


def _between(member: GroupState, ranks: Iterable[int], divisor: float) -> Edges:
    others = _ranks(rank for rank in ranks if rank != member.rank)
    return member.backend.edges(1.0, others, others, divisor)


def _ranks(ranks: Iterable[int]) -> list[tuple[int, float]]:
    return [(rank, 1.0) for rank in ranks]


def _tag(member: GroupState, op: str, name: str) -> int:
    """Return a tag that no neighbor operation has, whatever names a program gives those."""
    return named_tag(member, op, f"{op}\0{name}")
