"""torch.ops.bluefog.*: the neighbour operations as functions that autograd and compilers know.

Forms of `bluefog_pg.neighbor_allreduce` and the others that take lists instead of mappings, and the
group by its name ("" is the default one):

    torch.ops.bluefog.neighbor_allreduce(x)
    torch.ops.bluefog.neighbor_allreduce(
        x, self_weight=0.5, src_ranks=[1], src_weights=[0.5], dst_ranks=[2], group_name=name)

They are there as soon as a group is. Where a model is compiled, the topology is that of the time of
its compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg import _edges
from bluefog_pg._operators import alike, library, member_named, register, some_rows
from bluefog_pg.neighbors._arguments import tag_of_gradient

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg._C import Edges
    from bluefog_pg._member import Member

_EDGES = (
    "float self_weight, int[] src_ranks, float[] src_weights, int[] dst_ranks, "
    "float[] dst_weights, float divisor, int tag, str group_name"
)
library.define(f"_sum(Tensor[] tensors, str op, {_EDGES}) -> Tensor[]")
library.define(f"_parts(Tensor like, Tensor[] parts, {_EDGES}) -> Tensor[]")
# Also the number of rows of each source; and what its gradient is.
library.define(f"_rows(Tensor tensor, {_EDGES}) -> (Tensor, Tensor)")
library.define(f"_rows_back(Tensor grad, Tensor tensor, Tensor counts, {_EDGES}) -> Tensor")
library.define(f"_mean_of_machines(Tensor tensor, {_EDGES}) -> Tensor")


def sum_of(op: str, tensor: Tensor, edges: Edges, tag: int, member: Member) -> Tensor:
    """Differentiable `neighbor_allreduce` and `pair_gossip`."""
    return sums_of(op, [tensor], edges, tag, member)[0]


def sums_of(
    op: str, tensors: Sequence[Tensor], edges: Edges, tag: int, member: Member
) -> list[Tensor]:
    """Of a list."""
    summed: list[Tensor] = torch.ops.bluefog._sum(tensors, op, *_listed(edges, tag, member))
    return summed


def parts_of(
    like: Tensor, parts: Sequence[Tensor], edges: Edges, tag: int, member: Member
) -> list[Tensor]:
    """Differentiable `neighbor_alltoall`."""
    got: list[Tensor] = torch.ops.bluefog._parts(like, parts, *_listed(edges, tag, member))
    return got


def rows_of(tensor: Tensor, edges: Edges, tag: int, member: Member) -> Tensor:
    """Differentiable `neighbor_allgather`."""
    rows: Tensor
    rows, _ = torch.ops.bluefog._rows(tensor, *_listed(edges, tag, member))
    return rows


def mean_of_machines(tensor: Tensor, edges: Edges, tag: int, member: Member) -> Tensor:
    """Differentiable `hierarchical_neighbor_allreduce`."""
    mean: Tensor = torch.ops.bluefog._mean_of_machines(tensor, *_listed(edges, tag, member))
    return mean


def _listed(edges: Edges, tag: int, member: Member) -> tuple[Any, ...]:
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
    )


def _reversed(listed: Sequence[Any]) -> tuple[Any, ...]:
    """The edges along which gradients go, with the weights that they had, under their own tag."""
    own, src_ranks, src_weights, dst_ranks, dst_weights, divisor, tag, group_name = listed
    scaled = [weight / divisor for weight in src_weights]
    tag = tag_of_gradient(tag)
    return own / divisor, dst_ranks, dst_weights, src_ranks, scaled, 1.0, tag, group_name


def _unlisted(listed: Sequence[Any]) -> tuple[Member, Edges, int]:
    own, src_ranks, src_weights, dst_ranks, dst_weights, divisor, tag, group_name = listed
    member = member_named(group_name)
    edges = member.backend.edges(
        own,
        list(zip(src_ranks, src_weights, strict=True)),
        list(zip(dst_ranks, dst_weights, strict=True)),
        divisor,
    )
    return member, edges, tag


def _run_sum(tensors: list[Tensor], op: str, *listed: Any) -> list[Tensor]:
    member, edges, tag = _unlisted(listed)
    average = getattr(member.backend, op)
    if len(tensors) == 1:  # as one that was given by itself
        return [average(tensors[0], edges, tag, False)]
    summed: list[Tensor] = average(tensors, edges, tag, False)
    return summed


def _run_parts(like: Tensor, parts: list[Tensor], *listed: Any) -> list[Tensor]:
    member, edges, tag = _unlisted(listed)
    return member.backend.neighbor_alltoall(like, parts, edges, tag, False)


def _run_rows(tensor: Tensor, *listed: Any) -> tuple[Tensor, Tensor]:
    member, edges, tag = _unlisted(listed)
    same = [tensor] * len(edges.destinations)
    parts = member.backend.neighbor_allgather_in_parts(tensor, same, edges, tag, False)
    counts = torch.tensor([len(part) for part in parts], dtype=torch.int64)
    return torch.cat([tensor.new_empty((0, *tensor.shape[1:])), *parts]), counts


def _run_rows_back(grad: Tensor, tensor: Tensor, counts: Tensor, *listed: Any) -> Tensor:
    member, edges, tag = _unlisted(listed)
    parts = list(torch.split(grad, counts.tolist())) if len(counts) else []
    back = member.backend.neighbor_allgather_in_parts(grad, parts, edges, tag, False)
    return torch.stack(back).sum(0) if back else torch.zeros_like(tensor)


def _run_mean(tensor: Tensor, *listed: Any) -> Tensor:
    member, edges, tag = _unlisted(listed)
    return member.backend.hierarchical_neighbor_allreduce(
        tensor, member.machines.locals, edges, tag, False
    )


def _fake_sum(tensors: list[Tensor], *_: Any) -> list[Tensor]:
    return [alike(tensor) for tensor in tensors]


def _fake_parts(like: Tensor, _: list[Tensor], *listed: Any) -> list[Tensor]:
    return [some_rows(like) for _ in listed[1]]


def _fake_rows(tensor: Tensor, *listed: Any) -> tuple[Tensor, Tensor]:
    return some_rows(tensor), torch.empty(len(listed[1]), dtype=torch.int64)


def _fake_rows_back(_: Tensor, tensor: Tensor, *__: Any) -> Tensor:
    return alike(tensor)


def _keep_sum(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    _, ctx.op, *ctx.listed = inputs


def _sum_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    back = torch.ops.bluefog._sum(grads, ctx.op, *_reversed(ctx.listed))
    return back, None, *_no_gradients(ctx.listed)


def _keep_parts(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    like, _, *ctx.listed = inputs
    ctx.save_for_backward(like)


def _parts_backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    (like,) = ctx.saved_tensors
    listed = _reversed(ctx.listed)
    back = torch.ops.bluefog._parts(like.detach(), grads, *listed)
    return None, back, *_no_gradients(ctx.listed)


def _keep_rows(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensor, *ctx.listed = inputs
    ctx.save_for_backward(tensor, output[1])


def _rows_backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    tensor, counts = ctx.saved_tensors
    listed = _reversed(ctx.listed)
    back = torch.ops.bluefog._rows_back(grad, tensor.detach(), counts, *listed)
    return back, *[None] * len(ctx.listed)


def _keep_rows_back(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    _, _, _, *ctx.listed = inputs


def _rows_back_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    back, _ = torch.ops.bluefog._rows(grad, *_reversed(ctx.listed))
    return back, None, None, *[None] * len(ctx.listed)


def _keep_mean(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    _, *ctx.listed = inputs


def _mean_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    back = torch.ops.bluefog._mean_of_machines(grad, *_reversed(ctx.listed))
    return back, *[None] * len(ctx.listed)


def _no_gradients(listed: Sequence[Any]) -> list[Any]:
    """torch takes an empty list of ranks for one of tensors."""
    return [[] if value == [] else None for value in listed]


register("_sum", _run_sum, _fake_sum, _keep_sum, _sum_backward)
register("_parts", _run_parts, _fake_parts, _keep_parts, _parts_backward)
register("_rows", _run_rows, _fake_rows, _keep_rows, _rows_backward)
register("_rows_back", _run_rows_back, _fake_rows_back, _keep_rows_back, _rows_back_backward)
register("_mean_of_machines", _run_mean, alike, _keep_mean, _mean_backward)


_LISTS = (
    "float? self_weight=None, int[]? src_ranks=None, float[]? src_weights=None, "
    "int[]? dst_ranks=None, float[]? dst_weights=None, str group_name=''"
)
_RANKS = "int[]? src_ranks=None, int[]? dst_ranks=None, str group_name=''"


def _mapping(ranks: list[int] | None, weights: list[float] | None) -> dict[int, float] | None:
    """Weights that are left out are 1."""
    if ranks is None and weights is None:
        return None
    ranks = ranks or []
    weights = [1.0] * len(ranks) if weights is None else weights
    mapping = dict(zip(ranks, weights, strict=False))
    if not len(mapping) == len(ranks) == len(weights):
        raise ValueError(
            f"torch.ops.bluefog: expected weights of different ranks, got {weights} and {ranks}"
        )
    return mapping


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
    member = member_named(group_name)
    edges = _edges.averaging(
        member,
        "neighbor_allreduce",
        tensor,
        self_weight,
        _mapping(src_ranks, src_weights),
        _mapping(dst_ranks, dst_weights),
    )
    return sum_of("neighbor_allreduce", tensor, edges, 0, member)


def _neighbor_allgather(
    tensor: Tensor,
    *,
    src_ranks: list[int] | None = None,
    dst_ranks: list[int] | None = None,
    group_name: str = "",
) -> Tensor:
    member = member_named(group_name)
    edges = _edges.gathering(member, "neighbor_allgather", tensor, src_ranks, dst_ranks)
    return rows_of(tensor, edges, 0, member)


def _neighbor_alltoall(
    tensors: list[Tensor],
    *,
    src_ranks: list[int] | None = None,
    dst_ranks: list[int] | None = None,
    group_name: str = "",
) -> list[Tensor]:
    member = member_named(group_name)
    if not tensors:
        raise ValueError(f"{member.who} neighbor_alltoall: expected at least one tensor, got none")
    edges = _edges.gathering(member, "neighbor_alltoall", tensors, src_ranks, dst_ranks)
    return parts_of(tensors[0], tensors, edges, 0, member)


def _pair_gossip(
    tensor: Tensor,
    target_rank: int,
    *,
    self_weight: float | None = None,
    pair_weight: float | None = None,
    group_name: str = "",
) -> Tensor:
    member = member_named(group_name)
    edges = _edges.gossiping(member, tensor, target_rank, self_weight, pair_weight)
    return sum_of("pair_gossip", tensor, edges, 0, member)


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
    member = member_named(group_name)
    edges = _edges.between_machines(
        member,
        tensor,
        self_weight,
        _mapping(src_machine_ranks, src_machine_weights),
        _mapping(dst_machine_ranks, dst_machine_weights),
    )
    return mean_of_machines(tensor, edges, 0, member)


_MACHINES = (
    "float? self_weight=None, int[]? src_machine_ranks=None, float[]? src_machine_weights=None, "
    "int[]? dst_machine_ranks=None, float[]? dst_machine_weights=None, str group_name=''"
)
_GOSSIP = (
    "Tensor tensor, int target_rank, *, float? self_weight=None, float? pair_weight=None, "
    "str group_name=''"
)
# As Python's functions of these names: the tensor by its place, the others by keyword.
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
