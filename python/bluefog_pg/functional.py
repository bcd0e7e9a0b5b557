"""This module defines the neighbor operations as operators, for autograd and compilers.

The operators of torch.ops.bluefog do what `bluefog_pg.neighbor_allreduce` and the others do. They
take lists instead of mappings, and the group by its name ("" is the default one). They exist as
soon as a group does. `bluefog_pg` calls this module's functions for differentiable calls; programs
call torch.ops.bluefog.

A compiled model takes the topology that is set when it runs, forward and backward. The compiled
code holds only what the call asked for, so that compilers may keep it for other ranks and other
runs. The one exception is the number of neighbor_alltoall's results, which is that of the
in-neighbors at compilation. A compiled model leaves out none of these calls, and keeps their order.
Therefore it must not have one inside of torch.utils.checkpoint or torch.cond, which may leave out
or repeat calls.

Any thread may call the operators, in one order on all ranks.

Example:
    >>> x = torch.full((2,), float(bf.rank()), requires_grad=True)
    >>> everyone = [rank for rank in range(4) if rank != bf.rank()]
    >>> mean = torch.ops.bluefog.neighbor_allreduce(
    ...     x, self_weight=0.25, src_ranks=everyone, src_weights=[0.25] * 3, dst_ranks=everyone
    ... )
    >>> mean.sum().backward()
    >>> mean.tolist(), x.grad.tolist()
    ([1.5, 1.5], [1.0, 1.0])
    >>> torch.ops.bluefog.pair_gossip(x.detach(), bf.rank() ^ 1).mean().item() in (0.5, 2.5)
    True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg._core.loader import load
from bluefog_pg._core.operators import alike, library, member_named, register, some_rows
from bluefog_pg._core.refused import count_refused, count_refused_pair
from bluefog_pg._core.tags import tag_of_gradient
from bluefog_pg.topology.operator_arguments import edges_for_operator

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg._C import Edges, Match
    from bluefog_pg._core.group_state import GroupState

    Listed = Sequence[Any]

# If `looked_up_as` is empty, these arguments are the edges themselves, with their `divisor`.
# Otherwise they are what a call asked for: when the operator runs, it looks up the edges of the
# operation `looked_up_as`, and reverses them `reversals` times.
_EDGES = (
    "float? self_weight, int[]? src_ranks, float[]? src_weights, int[]? dst_ranks, "
    "float[]? dst_weights, float divisor, int tag, str group_name, str looked_up_as, int reversals"
)
# The last result of each operator is the number of its call (see _C.Match). The gradient is given
# that number, so that the gradients of one call match on all ranks.
_CALL = f"Tensor? number, {_EDGES}"
library.define(f"_sum(Tensor[] tensors, str op, {_CALL}) -> Tensor[]")
library.define(f"_parts(Tensor like, Tensor[] parts, int sources_n, {_CALL}) -> Tensor[]")
# `_rows` returns all rows, the number of rows of each source, and the number of the call. The
# counts have the same length whatever the edges are. The results are a list because Inductor loses
# an unknown size among several results. `_rows_back` computes the gradient of `_rows`.
_MOST_SOURCES = 256  # the same number as kMostRanks in RankSet.hpp
library.define(f"_rows(Tensor tensor, {_CALL}) -> Tensor[]")
library.define(f"_rows_back(Tensor grad, Tensor tensor, Tensor counts, {_CALL}) -> Tensor")
library.define(f"_mean_of_machines(Tensor tensor, {_CALL}) -> Tensor[]")


def sum_of(op: str, tensor: Tensor, edges: Edges, tag: int, member: GroupState) -> Tensor:
    """Return what `neighbor_allreduce` or `pair_gossip` returns, for autograd."""
    return sums_of(op, [tensor], edges, tag, member)[0]


def sums_of(
    op: str, tensors: Sequence[Tensor], edges: Edges, tag: int, member: GroupState
) -> list[Tensor]:
    """Return for a list of tensors what `sum_of` returns for one."""
    return _sums(tensors, op, _given(edges, tag, member))


def parts_of(
    like: Tensor, parts: Sequence[Tensor], edges: Edges, tag: int, member: GroupState
) -> list[Tensor]:
    """Return what `neighbor_alltoall` returns, for autograd."""
    return _parts(like, parts, len(edges.sources), _given(edges, tag, member))


def rows_of(tensor: Tensor, edges: Edges, tag: int, member: GroupState) -> Tensor:
    """Return what `neighbor_allgather` returns, for autograd."""
    return _rows(tensor, _given(edges, tag, member))


def parts_of_rows(tensor: Tensor, edges: Edges, tag: int, member: GroupState) -> list[Tensor]:
    """Return the rows of each source, as differentiable parts of one `neighbor_allgather`."""
    rows, counts, _ = torch.ops.bluefog._rows(tensor, None, *_given(edges, tag, member))
    parts: list[Tensor] = list(torch.split(rows, counts[: len(edges.sources)].tolist()))
    return parts


def mean_of_machines(tensor: Tensor, edges: Edges, tag: int, member: GroupState) -> Tensor:
    """Return what `hierarchical_neighbor_allreduce` returns, for autograd."""
    return _mean(tensor, _given(edges, tag, member))


def _sums(
    tensors: Sequence[Tensor], op: str, listed: Listed, number: Tensor | None = None
) -> list[Tensor]:
    results: list[Tensor] = torch.ops.bluefog._sum(tensors, op, number, *listed)
    return results[:-1]


def _parts(
    like: Tensor,
    parts: Sequence[Tensor],
    sources_n: int,
    listed: Listed,
    number: Tensor | None = None,
) -> list[Tensor]:
    results: list[Tensor] = torch.ops.bluefog._parts(like, parts, sources_n, number, *listed)
    return results[:-1]


def _rows(tensor: Tensor, listed: Listed, number: Tensor | None = None) -> Tensor:
    rows: Tensor
    rows, _, _ = torch.ops.bluefog._rows(tensor, number, *listed)
    return rows


def _mean(tensor: Tensor, listed: Listed, number: Tensor | None = None) -> Tensor:
    mean: Tensor
    mean, _ = torch.ops.bluefog._mean_of_machines(tensor, number, *listed)
    return mean


def _given(edges: Edges, tag: int, member: GroupState) -> Listed:
    """Return edges as the list of arguments that operators take (see _EDGES)."""
    sources, destinations = edges.sources, edges.destinations
    return (
        edges.self_weight,
        [rank for rank, _ in sources],
        [weight for _, weight in sources],
        [rank for rank, _ in destinations],
        [weight for _, weight in destinations],
        edges.divisor,
        tag,
        member.group.group_name,
        "",
        0,
    )


def _listed_for(
    op: str, tensors: Sequence[Tensor], asked: Listed, group_name: str
) -> tuple[Listed, Edges]:
    """Return the arguments that operators take for a call, and the edges that the call means now.

    A compiler's trace keeps what the call asked for, and the edges are looked up at each run.
    Otherwise the arguments are the edges themselves.
    """
    member = member_named(group_name)
    is_traced = torch._C._len_torch_dispatch_stack() > 0
    edges = _found(op, member, tensors, asked, counts=not is_traced)
    return (*asked, 1.0, 0, group_name, op, 0) if is_traced else _given(edges, 0, member), edges


def _found(
    op: str, member: GroupState, tensors: Sequence[Tensor], asked: Listed, *, counts: bool
) -> Edges:
    try:
        return edges_for_operator(op, member, tensors, *asked)
    except BaseException:
        if counts and op == "pair_gossip":
            count_refused_pair(member, tensors, asked[1][0], None)
        elif counts:
            count_refused(member, tensors, None)
        raise


def _reversed(listed: Listed) -> Listed:
    """Return the reversed edges, along which gradients travel, with a tag of their own."""
    *asked, divisor, tag, group_name, op, reversals = listed
    tag = tag_of_gradient(tag)
    if op:
        return *asked, divisor, tag, group_name, op, reversals + 1
    own, src_ranks, src_weights, dst_ranks, dst_weights = asked
    scaled = [weight / divisor for weight in src_weights]
    edges = (own / divisor, dst_ranks, dst_weights, src_ranks, scaled)
    return *edges, 1.0, tag, group_name, op, reversals


def _unlisted(listed: Listed, tensors: Sequence[Tensor]) -> tuple[GroupState, Edges, Match]:
    number, *asked, _, tag, group_name, op, reversals = listed
    member = member_named(group_name)
    match = load().Match(tag, 0 if number is None else int(number))
    if not op:
        return member, _edges_of(listed[1:], member), match
    edges = _found(op, member, tensors, asked, counts=number is None)
    if not reversals:
        return member, edges, match
    found = _given(edges, 0, member)
    for _ in range(reversals):
        found = _reversed(found)
    return member, _edges_of(found, member), match


def _number_of(match: Match) -> Tensor:
    return torch.tensor(match.number, dtype=torch.int64, device="cpu")


def _edges_of(listed: Listed, member: GroupState) -> Edges:
    own, src_ranks, src_weights, dst_ranks, dst_weights, divisor, *_ = listed
    return member.backend.edges(
        own,
        list(zip(src_ranks, src_weights, strict=True)),
        list(zip(dst_ranks, dst_weights, strict=True)),
        divisor,
    )


def _run_sum(tensors: list[Tensor], op: str, *listed: Any) -> list[Tensor]:
    member, edges, match = _unlisted(listed, tensors)
    average = getattr(member.backend, op)
    if len(tensors) == 1:  # A list of one tensor matches a tensor that was given by itself.
        return [average(tensors[0], edges, match, False), _number_of(match)]
    return [*average(tensors, edges, match, False), _number_of(match)]


def _run_parts(like: Tensor, parts: list[Tensor], sources_n: int, *listed: Any) -> list[Tensor]:
    member, edges, match = _unlisted(listed, parts)
    if len(edges.sources) != sources_n:
        raise RuntimeError(
            f"{member.who} neighbor_alltoall: the call was compiled for {sources_n} "
            f"in-neighbors, and this rank has {len(edges.sources)} now; compile it again "
            "(torch.compiler.reset()), or give src_ranks and dst_ranks"
        )
    got = member.backend.neighbor_alltoall(like, parts, edges, match, False)
    return [*got, _number_of(match)]


def _run_rows(tensor: Tensor, *listed: Any) -> list[Tensor]:
    member, edges, match = _unlisted(listed, [tensor])
    same = [tensor] * len(edges.destinations)
    parts = member.backend.neighbor_allgather_in_parts(tensor, same, edges, match, False)
    counts = torch.zeros(_MOST_SOURCES, dtype=torch.int64, device="cpu")
    counts[: len(parts)] = counts.new_tensor([len(part) for part in parts])
    rows = torch.cat([tensor.new_empty((0, *tensor.shape[1:])), *parts])
    return [rows, counts, _number_of(match)]


def _run_rows_back(grad: Tensor, tensor: Tensor, counts: Tensor, *listed: Any) -> Tensor:
    member, edges, match = _unlisted(listed, [grad])
    parts = list(torch.split(grad, counts.tolist()))[: len(edges.destinations)]
    back = member.backend.neighbor_allgather_in_parts(grad, parts, edges, match, False)
    return torch.stack(back).sum(0) if back else torch.zeros_like(tensor)


def _run_mean(tensor: Tensor, *listed: Any) -> list[Tensor]:
    member, edges, match = _unlisted(listed, [tensor])
    mean = member.backend.hierarchical_neighbor_allreduce(
        tensor, member.machines.locals, edges, match, False
    )
    return [mean, _number_of(match)]


def _fake_number() -> Tensor:
    return torch.empty((), dtype=torch.int64, device="cpu")


def _fake_sum(tensors: list[Tensor], *_: Any) -> list[Tensor]:
    return [*map(alike, tensors), _fake_number()]


def _fake_parts(like: Tensor, _: list[Tensor], sources_n: int, *__: Any) -> list[Tensor]:
    return [*(some_rows(like) for _ in range(sources_n)), _fake_number()]


def _fake_rows(tensor: Tensor, *_: Any) -> list[Tensor]:
    counts = torch.empty(_MOST_SOURCES, dtype=torch.int64, device="cpu")
    return [some_rows(tensor), counts, _fake_number()]


def _fake_mean(tensor: Tensor, *_: Any) -> list[Tensor]:
    return [alike(tensor), _fake_number()]


def _fake_rows_back(_: Tensor, tensor: Tensor, *__: Any) -> Tensor:
    return alike(tensor)


def _keep_sum(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, ctx.op, _, *ctx.listed = inputs
    ctx.save_for_backward(output[-1])


def _sum_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    (number,) = ctx.saved_tensors
    back = _sums(grads[:-1], ctx.op, _reversed(ctx.listed), number)
    return back, None, None, *_no_gradients(ctx.listed)


def _keep_parts(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    like, parts, _, _, *ctx.listed = inputs
    ctx.parts_n = len(parts)
    ctx.save_for_backward(like, output[-1])


def _parts_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    like, number = ctx.saved_tensors
    back = _parts(like.detach(), grads[:-1], ctx.parts_n, _reversed(ctx.listed), number)
    return None, back, None, None, *_no_gradients(ctx.listed)


def _keep_rows(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensor, _, *ctx.listed = inputs
    ctx.save_for_backward(tensor, *output[1:])


def _rows_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    tensor, counts, number = ctx.saved_tensors
    listed = _reversed(ctx.listed)
    back = torch.ops.bluefog._rows_back(grads[0], tensor.detach(), counts, number, *listed)
    return back, None, *_no_gradients(ctx.listed)


def _keep_rows_back(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    *_, number = inputs[:4]
    ctx.listed = inputs[4:]
    ctx.save_for_backward(number)


def _rows_back_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (number,) = ctx.saved_tensors
    back = _rows(grad, _reversed(ctx.listed), number)
    return back, None, None, None, *[None] * len(ctx.listed)


def _keep_mean(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, _, *ctx.listed = inputs
    ctx.save_for_backward(output[-1])


def _mean_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    (number,) = ctx.saved_tensors
    back = _mean(grads[0], _reversed(ctx.listed), number)
    return back, None, *_no_gradients(ctx.listed)


def _no_gradients(listed: Sequence[Any]) -> list[Any]:
    """Return no gradients for arguments; torch takes an empty list of ranks for one of tensors."""
    return [[] if value == [] else None for value in listed]


register("_sum", _run_sum, _fake_sum, _keep_sum, _sum_backward)
register("_parts", _run_parts, _fake_parts, _keep_parts, _parts_backward)
register("_rows", _run_rows, _fake_rows, _keep_rows, _rows_backward)
register("_rows_back", _run_rows_back, _fake_rows_back, _keep_rows_back, _rows_back_backward)
register("_mean_of_machines", _run_mean, _fake_mean, _keep_mean, _mean_backward)


_LISTS = (
    "float? self_weight=None, int[]? src_ranks=None, float[]? src_weights=None, "
    "int[]? dst_ranks=None, float[]? dst_weights=None, str group_name=''"
)
_RANKS = "int[]? src_ranks=None, int[]? dst_ranks=None, str group_name=''"


def _neighbor_allreduce(
    tensor: Tensor,
    *,
    self_weight: float | None = None,
    src_ranks: list[int] | None = None,
    src_weights: list[float] | None = None,
    dst_ranks: list[int] | None = None,
    dst_weights: list[float] | None = None,
    group_name: str = "",
) -> Tensor:
    op = "neighbor_allreduce"
    asked = (self_weight, src_ranks, src_weights, dst_ranks, dst_weights)
    listed, _ = _listed_for(op, [tensor], asked, group_name)
    return _sums([tensor], op, listed)[0]


def _neighbor_allgather(
    tensor: Tensor,
    *,
    src_ranks: list[int] | None = None,
    dst_ranks: list[int] | None = None,
    group_name: str = "",
) -> Tensor:
    op = "neighbor_allgather"
    asked = (None, src_ranks, None, dst_ranks, None)
    listed, _ = _listed_for(op, [tensor], asked, group_name)
    return _rows(tensor, listed)


def _neighbor_alltoall(
    tensors: list[Tensor],
    *,
    src_ranks: list[int] | None = None,
    dst_ranks: list[int] | None = None,
    group_name: str = "",
) -> list[Tensor]:
    op = "neighbor_alltoall"
    if not tensors:
        member = member_named(group_name)
        count_refused(member, tensors, None)
        raise ValueError(f"{member.who} {op}: expected at least one tensor, got none")
    asked = (None, src_ranks, None, dst_ranks, None)
    listed, edges = _listed_for(op, tensors, asked, group_name)
    return _parts(tensors[0], tensors, len(edges.sources), listed)


def _pair_gossip(
    tensor: Tensor,
    target_rank: int,
    *,
    self_weight: float | None = None,
    pair_weight: float | None = None,
    group_name: str = "",
) -> Tensor:
    op = "pair_gossip"
    pair_weights = None if pair_weight is None else [pair_weight]
    asked = (self_weight, [target_rank], pair_weights, None, None)
    listed, _ = _listed_for(op, [tensor], asked, group_name)
    return _sums([tensor], op, listed)[0]


def _hierarchical_neighbor_allreduce(
    tensor: Tensor,
    *,
    self_weight: float | None = None,
    src_machine_ranks: list[int] | None = None,
    src_machine_weights: list[float] | None = None,
    dst_machine_ranks: list[int] | None = None,
    dst_machine_weights: list[float] | None = None,
    group_name: str = "",
) -> Tensor:
    op = "hierarchical_neighbor_allreduce"
    sources = (src_machine_ranks, src_machine_weights)
    asked = (self_weight, *sources, dst_machine_ranks, dst_machine_weights)
    listed, _ = _listed_for(op, [tensor], asked, group_name)
    return _mean(tensor, listed)


_MACHINES = (
    "float? self_weight=None, int[]? src_machine_ranks=None, float[]? src_machine_weights=None, "
    "int[]? dst_machine_ranks=None, float[]? dst_machine_weights=None, str group_name=''"
)
_GOSSIP = (
    "Tensor tensor, int target_rank, *, float? self_weight=None, float? pair_weight=None, "
    "str group_name=''"
)
# The operators take arguments as Python's functions of these names do: tensors and the target rank
# by position, all else by keyword.
for _function, _arguments, _result in (
    (_neighbor_allreduce, f"Tensor tensor, *, {_LISTS}", "Tensor"),
    (_neighbor_allgather, f"Tensor tensor, *, {_RANKS}", "Tensor"),
    (_neighbor_alltoall, f"Tensor[] tensors, *, {_RANKS}", "Tensor[]"),
    (_pair_gossip, _GOSSIP, "Tensor"),
    (_hierarchical_neighbor_allreduce, f"Tensor tensor, *, {_MACHINES}", "Tensor"),
):
    _name = _function.__name__.removeprefix("_")
    library.define(f"{_name}({_arguments}) -> {_result}")
    library.impl(_name, _function, "CompositeImplicitAutograd")
