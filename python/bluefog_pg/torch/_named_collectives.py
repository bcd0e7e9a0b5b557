"""Collectives that ranks match by a name, in whatever order each rank begins them.

They are messages between all pairs of ranks, which match by name, edge and order. Collectives
without a name match in the order in which the ranks call them, and send less. Each function returns
the result; with `async_op`, the Work and a function that gives the result after the Work's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg import functional
from bluefog_pg._errors import ArgumentError
from bluefog_pg._loader import load
from bluefog_pg._member import member_of
from bluefog_pg._operators import keeps_graph
from bluefog_pg._tags import named_tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from bluefog_pg._C import Edges
    from bluefog_pg._member import Member


def allreduce(tensor: Tensor, average: bool, is_local: bool, name: str, async_op: bool) -> Any:
    """What `collectives.allreduce` gives, which says what is refused."""
    member, op = member_of(None), "allreduce"
    ranks = member.machines.locals if is_local else range(member.size)
    has_fractions = tensor.is_floating_point() or tensor.is_complex()
    if average and not has_fractions:
        raise ArgumentError(
            f"{member.who} {op}: only tensors of a type with fractions have an average, not "
            f"{tensor.dtype}; average=False gives the sum"
        )
    tag = _tag(member, op, name)
    if not has_fractions:
        return _sum_of_integers(member, tensor, ranks, tag, async_op)
    edges = _between(member, ranks, float(len(ranks)) if average else 1.0)
    if tensor.requires_grad and keeps_graph(async_op):
        return functional.sum_of("neighbor_allreduce", tensor, edges, tag, member)
    done: Any = member.backend.neighbor_allreduce(tensor.detach(), edges, tag, async_op)
    return (done, lambda: done.result()[0]) if async_op else done


def broadcast(tensor: Tensor, root: int, name: str, async_op: bool) -> Any:
    """What `collectives.broadcast` gives."""
    member, op = member_of(None), "broadcast"
    if not 0 <= root < member.size:
        raise ValueError(
            f"{member.who} {op}: root_rank is {root}; there are ranks 0 to {member.size - 1}"
        )
    # Who is no root sends no row, so that ranks which name unlike roots hear of it.
    row = tensor.reshape(1, -1)
    given = row if member.rank == root else row[:0]
    edges, tag = _between(member, range(member.size), 1.0), _tag(member, op, name)

    def result(rows: Tensor) -> Tensor:
        if len(rows) + len(given) != 1:
            raise load().Mismatch(
                f"{member.who} {op} {name!r}: the ranks name unlike roots; this one names {root}"
            )
        return torch.cat([given, rows]).view(tensor.shape)

    if tensor.requires_grad and keeps_graph(async_op):
        others = _ranks(rank for rank in range(member.size) if rank != root)
        ends = ([], others) if member.rank == root else ([(root, 1.0)], [])
        from_root = functional.rows_of(row, member.backend.edges(1.0, *ends, 1.0), tag, member)
        return result(from_root)
    return _gathered(
        member, given.detach(), edges, tag, async_op, lambda p: result(torch.cat([row[:0], *p]))
    )


def allgather(tensor: Tensor, name: str, async_op: bool) -> Any:
    """What `collectives.allgather` gives."""
    member, op = member_of(None), "allgather"
    if tensor.dim() == 0:
        raise ValueError(f"{member.who} {op}: the tensor has no dimensions, so it has no rows")
    tag, rank = _tag(member, op, name), member.rank
    if tensor.requires_grad and keeps_graph(async_op):
        before, after = _ranks(range(rank)), _ranks(range(rank + 1, member.size))
        edges = [
            member.backend.edges(1.0, *ends, 1.0) for ends in ((before, after), (after, before))
        ]
        tags = tag, _tag(member, op, f"{name}\0after")
        rows = [
            functional.rows_of(tensor, its, tag, member)
            for its, tag in zip(edges, tags, strict=True)
        ]
        return torch.cat([rows[0], tensor, rows[1]])
    edges_of_all = _between(member, range(member.size), 1.0)

    def result(others: list[Tensor]) -> Tensor:
        return torch.cat([*others[:rank], tensor.detach(), *others[rank:]])

    return _gathered(member, tensor.detach(), edges_of_all, tag, async_op, result)


def _sum_of_integers(
    member: Member, tensor: Tensor, ranks: Sequence[int], tag: int, async_op: bool
) -> Any:
    row = tensor.detach().reshape(1, -1)

    def result(others: list[Tensor]) -> Tensor:
        return torch.cat([*others, row]).sum(0, dtype=tensor.dtype).view(tensor.shape)

    return _gathered(member, row, _between(member, ranks, 1.0), tag, async_op, result)


def _gathered(
    member: Member,
    rows: Tensor,
    edges: Edges,
    tag: int,
    async_op: bool,
    result: Callable[[list[Tensor]], Tensor],
) -> Any:
    """`result` of the sources' rows, in the order of the ranks."""
    # Of none, the backend cannot tell the size of a row.
    like = rows if len(rows) else rows.new_empty((1, *rows.shape[1:]))
    backend: Any = member.backend
    parts = [rows] * len(edges.destinations)
    done = backend.allgather_in_parts(like, parts, edges, tag, async_op)
    return (done, lambda: result(done.result())) if async_op else result(done)


def _between(member: Member, ranks: Sequence[int], divisor: float) -> Edges:
    others = _ranks(rank for rank in ranks if rank != member.rank)
    return member.backend.edges(1.0, others, others, divisor)


def _ranks(ranks: Any) -> list[tuple[int, float]]:
    return [(rank, 1.0) for rank in ranks]


def _tag(member: Member, op: str, name: str) -> int:
    """No neighbour operation's, whatever names a program gives those."""
    return named_tag(member, op, f"{op}\0{name}")
