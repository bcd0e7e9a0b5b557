"""This module defines the collectives' operators, which autograd and compilers know.


    torch.ops.bluefog.allreduce(x, average=True, is_hierarchical_local=False, group_name=name)
    torch.ops.bluefog.broadcast(x, root_rank, group_name=name)
    torch.ops.bluefog.allgather(x, group_name=name)

The name "" means the default group. The operators exist as soon as a group does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg._core.operators import alike, library, member_named, register, some_rows
from bluefog_pg.collectives.calls import (
    broadcast_in_place,
    complete,
    copy_of,
    place_for,
    rows_of_others,
    sum_in_place,
    with_own,
)

if TYPE_CHECKING:
    from torch import Tensor

library.define(
    "allreduce(Tensor tensor, bool average=True, *, bool is_hierarchical_local=False, "
    "str group_name='') -> Tensor"
)
library.define("broadcast(Tensor tensor, int root_rank, *, str group_name='') -> Tensor")
library.define("allgather(Tensor tensor, *, str group_name='') -> Tensor")
# This is the gradient of broadcast: it returns the sum on the root, and zeros elsewhere.
library.define("_sum_at(Tensor tensor, int root_rank, str group_name) -> Tensor")
# This is allgather, but also returns how many rows each rank has. The results are a list because
# Inductor loses an unknown size among several results.
library.define("_all_rows(Tensor tensor, str group_name) -> Tensor[]")
# This is the gradient of _all_rows: it returns this rank's rows of the sum of all ranks' tensors.
library.define("_own_rows(Tensor tensor, Tensor counts, SymInt rows, str group_name) -> Tensor")


def _run_allreduce(
    tensor: Tensor,
    average: bool = True,
    *,
    is_hierarchical_local: bool = False,
    group_name: str = "",
) -> Tensor:
    summed = copy_of(tensor)
    sum_in_place(member_named(group_name), summed, average, is_hierarchical_local, async_op=False)
    return summed


def _keep_allreduce(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    del output
    ctx.average, ctx.options = inputs[1], keyword_only_inputs


def _allreduce_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return torch.ops.bluefog.allreduce(grad, ctx.average, **ctx.options), None


def _run_broadcast(tensor: Tensor, root_rank: int, *, group_name: str = "") -> Tensor:
    member = member_named(group_name)
    place = place_for(member, tensor, root_rank)
    broadcast_in_place(member, place, root_rank, async_op=False)
    return place


def _keep_broadcast(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    del output
    ctx.root_rank, ctx.group_name = inputs[1], keyword_only_inputs["group_name"]


def _broadcast_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return torch.ops.bluefog._sum_at(grad, ctx.root_rank, ctx.group_name), None


def _run_sum_at(tensor: Tensor, root_rank: int, group_name: str) -> Tensor:
    member = member_named(group_name)
    summed = copy_of(tensor)
    options = dist.ReduceOptions()
    options.rootRank = root_rank
    options.asyncOp = False
    backend: Any = member.backend
    complete(backend.reduce([summed], options))
    return summed if member.rank == root_rank else summed.zero_()


def _keep_sum_at(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    _, ctx.root_rank, ctx.group_name = inputs


def _sum_at_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    back = torch.ops.bluefog.broadcast(grad, ctx.root_rank, group_name=ctx.group_name)
    return back, None, None


def _allgather(tensor: Tensor, *, group_name: str = "") -> Tensor:
    rows: Tensor
    rows, _ = torch.ops.bluefog._all_rows(tensor, group_name)
    return rows


def _run_all_rows(tensor: Tensor, group_name: str) -> list[Tensor]:
    member = member_named(group_name)
    parts = with_own(member, tensor.detach(), rows_of_others(member, tensor, async_op=False))
    counts = torch.tensor([len(part) for part in parts], dtype=torch.int64, device="cpu")
    return [torch.cat(parts), counts]


def _keep_all_rows(ctx: Any, inputs: Any, output: Any) -> None:
    tensor, ctx.group_name = inputs
    ctx.rows = tensor.size(0)
    ctx.save_for_backward(output[1])


def _all_rows_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    (counts,) = ctx.saved_tensors
    return torch.ops.bluefog._own_rows(grads[0], counts, ctx.rows, ctx.group_name), None


def _run_own_rows(tensor: Tensor, counts: Tensor, rows: int, group_name: str) -> Tensor:
    own = _fake_own_rows(tensor, counts, rows, group_name)
    options = dist.ReduceScatterOptions()
    options.asyncOp = False
    backend: Any = member_named(group_name).backend
    parts = [list(torch.split(tensor, counts.tolist()))]
    complete(backend.reduce_scatter([own], parts, options))
    return own


def _keep_own_rows(ctx: Any, inputs: Any, output: Any) -> None:
    del output
    ctx.group_name = inputs[-1]


def _own_rows_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return torch.ops.bluefog.allgather(grad, group_name=ctx.group_name), None, None, None


def _fake_all_rows(tensor: Tensor, group_name: str) -> list[Tensor]:
    counts = torch.empty(member_named(group_name).size, dtype=torch.int64, device="cpu")
    return [some_rows(tensor), counts]


def _fake_own_rows(tensor: Tensor, _: Tensor, rows: int, __: str) -> Tensor:
    return tensor.new_empty((rows, *tensor.shape[1:]))


register("allreduce", _run_allreduce, alike, _keep_allreduce, _allreduce_backward)
register("broadcast", _run_broadcast, alike, _keep_broadcast, _broadcast_backward)
register("_sum_at", _run_sum_at, alike, _keep_sum_at, _sum_at_backward)
register("_all_rows", _run_all_rows, _fake_all_rows, _keep_all_rows, _all_rows_backward)
register("_own_rows", _run_own_rows, _fake_own_rows, _keep_own_rows, _own_rows_backward)
library.impl("allgather", _allgather, "CompositeImplicitAutograd")
