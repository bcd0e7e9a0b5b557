"""This module defines the functions of `bluefog_pg.collectives`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import torch
import torch.distributed as dist

from bluefog_pg._core.group_state import GroupState
from bluefog_pg._core.operators import keeps_graph
from bluefog_pg.collectives import calls

if TYPE_CHECKING:
    from torch import Tensor


@overload
def allreduce(
    tensor: Tensor,
    average: bool = ...,
    group: dist.ProcessGroup | None = ...,
    *,
    is_hierarchical_local: bool = ...,
    async_op: Literal[False] = ...,
) -> Tensor: ...
@overload
def allreduce(
    tensor: Tensor,
    average: bool = ...,
    group: dist.ProcessGroup | None = ...,
    *,
    is_hierarchical_local: bool = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def allreduce(
    tensor: Tensor,
    average: bool = True,
    group: dist.ProcessGroup | None = None,
    *,
    is_hierarchical_local: bool = False,
    async_op: bool = False,
) -> Tensor | dist.Work:
    """Return the mean of all ranks' tensors, or their sum.

    The call is differentiable: the gradient is averaged or summed alike, so every rank has to go
    backward through it, and `tensor` requires a gradient on all ranks or on none. With async_op it
    is not.

    Args:
        tensor: any shape, the same on all ranks, on the CPU or the group's accelerator. Unchanged.
            On the CPU half types are accumulated in float32.
        average: divide the sum by the number of ranks.
        group: the process group; None, the default one.
        is_hierarchical_local: reduce over the ranks of this machine (see `world`) instead of all.
            For the first such call all ranks connect, and wait for each other, also with async_op.
        async_op: return a Work at once; after its wait() the result is `work.result()[0]`.

    Returns:
        A new tensor shaped like `tensor`, or the Work.

    Raises:
        ArgumentError: the average of integers.
        ValueError: a tensor that is not dense, or on another device.
        TypeError: no tensor; a group of another backend.
        NotRunning: there is no default process group.
        Mismatch: ranks called with other dtypes or numbers of elements, or something else.
        PeerFailed, CollectiveTimeout: a rank died, or did not come.

    Example:
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.collectives.allreduce(x).tolist()
        [1.5, 1.5]
        >>> work = bf.collectives.allreduce(x, average=False, async_op=True)
        >>> work.wait(), work.result()[0].tolist()
        (True, [6.0, 6.0])
    """
    member = calls.member_for("allreduce", tensor, group)
    calls.require_mean(member, "allreduce", tensor, average)
    if tensor.requires_grad and keeps_graph(async_op):
        return _run(
            "allreduce", member, tensor, average, is_hierarchical_local=is_hierarchical_local
        )
    summed = calls.copy_of(tensor)
    work = calls.sum_in_place(member, summed, average, is_hierarchical_local, async_op)
    return work if async_op else summed


@overload
def allreduce_(
    tensor: Tensor,
    average: bool = ...,
    group: dist.ProcessGroup | None = ...,
    *,
    is_hierarchical_local: bool = ...,
    async_op: Literal[False] = ...,
) -> Tensor: ...
@overload
def allreduce_(
    tensor: Tensor,
    average: bool = ...,
    group: dist.ProcessGroup | None = ...,
    *,
    is_hierarchical_local: bool = ...,
    async_op: Literal[True],
) -> dist.Work: ...
def allreduce_(
    tensor: Tensor,
    average: bool = True,
    group: dist.ProcessGroup | None = None,
    *,
    is_hierarchical_local: bool = False,
    async_op: bool = False,
) -> Tensor | dist.Work:
    """Replace a tensor by the mean of all ranks' tensors, or by their sum.

    It also takes a tensor that requires a gradient, which autograd takes for changed, as by
    `tensor.data`. Where autograd has kept the old values, it raises in backward.

    Args:
        tensor, average, group, is_hierarchical_local, async_op: as in `allreduce`; `tensor`
            changes.

    Returns:
        `tensor`, or the Work.

    Raises:
        The errors of `allreduce`.

    Example:
        >>> x = torch.full((2,), bf.rank())
        >>> bf.collectives.allreduce_(x, average=False) is x, x.tolist()
        (True, [6, 6])
    """
    member = calls.member_for("allreduce_", tensor, group)
    calls.require_mean(member, "allreduce_", tensor, average)
    _count_change(tensor)
    work = calls.sum_in_place(member, tensor.detach(), average, is_hierarchical_local, async_op)
    return work if async_op else tensor


@overload
def broadcast(
    tensor: Tensor,
    root_rank: int,
    group: dist.ProcessGroup | None = ...,
    *,
    async_op: Literal[False] = ...,
) -> Tensor: ...
@overload
def broadcast(
    tensor: Tensor,
    root_rank: int,
    group: dist.ProcessGroup | None = ...,
    *,
    async_op: Literal[True],
) -> dist.Work: ...
def broadcast(
    tensor: Tensor,
    root_rank: int,
    group: dist.ProcessGroup | None = None,
    *,
    async_op: bool = False,
) -> Tensor | dist.Work:
    """Return the root's tensor, on every rank.

    The call is differentiable: the root's gradient is the sum of all ranks', and zero elsewhere.
    With async_op it is not.

    Args:
        tensor: any shape and type, the same on all ranks, on the CPU or the group's accelerator.
            Unchanged; its values do not matter but on the root.
        root_rank: the group rank of the root, the same on all ranks.
        group, async_op: as in `allreduce`.

    Returns:
        A new tensor shaped like `tensor`, or the Work.

    Raises:
        ValueError: `root_rank` is none of the group's; a tensor as in `allreduce`.
        Mismatch: ranks named different roots.
        Others as `allreduce`.

    Example:
        >>> x = torch.full((2,), bf.rank())
        >>> bf.collectives.broadcast(x, root_rank=3).tolist()
        [3, 3]
    """
    member = calls.member_for("broadcast", tensor, group)
    root = calls.root_of(member, "broadcast", tensor, root_rank)
    if tensor.requires_grad and keeps_graph(async_op):
        return _run("broadcast", member, tensor, root)
    place = calls.place_for(member, tensor, root)
    work = calls.broadcast_in_place(member, place, root, async_op)
    return work if async_op else place


@overload
def broadcast_(
    tensor: Tensor,
    root_rank: int,
    group: dist.ProcessGroup | None = ...,
    *,
    async_op: Literal[False] = ...,
) -> Tensor: ...
@overload
def broadcast_(
    tensor: Tensor,
    root_rank: int,
    group: dist.ProcessGroup | None = ...,
    *,
    async_op: Literal[True],
) -> dist.Work: ...
def broadcast_(
    tensor: Tensor,
    root_rank: int,
    group: dist.ProcessGroup | None = None,
    *,
    async_op: bool = False,
) -> Tensor | dist.Work:
    """Replace a tensor by the root's.

    Autograd takes a tensor that requires a gradient for changed, as after `allreduce_`.

    Args:
        tensor, root_rank, group, async_op: as in `broadcast`; `tensor` changes.

    Returns:
        `tensor`, or the Work.

    Raises:
        The errors of `broadcast`.

    Example:
        >>> x = torch.full((2,), bf.rank())
        >>> _ = bf.collectives.broadcast_(x, root_rank=2)
        >>> x.tolist()
        [2, 2]
    """
    member = calls.member_for("broadcast_", tensor, group)
    root = calls.root_of(member, "broadcast_", tensor, root_rank)
    _count_change(tensor)
    work = calls.broadcast_in_place(member, tensor.detach(), root, async_op)
    return work if async_op else tensor


@overload
def allgather(
    tensor: Tensor,
    group: dist.ProcessGroup | None = ...,
    *,
    async_op: Literal[False] = ...,
) -> Tensor: ...
@overload
def allgather(
    tensor: Tensor,
    group: dist.ProcessGroup | None = ...,
    *,
    async_op: Literal[True],
) -> dist.Work: ...
def allgather(
    tensor: Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    async_op: bool = False,
) -> Tensor | dist.Work:
    """Return all ranks' tensors one after the other, along the first dimension.

    The call is differentiable: the gradient is the sum of all ranks' gradients of this rank's rows.
    With async_op it is not.

    Args:
        tensor: (rows, ...), of any type, on the CPU or the group's accelerator; ranks may have
            different numbers of rows, also none. Unchanged.
        group, async_op: as in `allreduce`.

    Returns:
        A new tensor (sum of all ranks' rows, ...), or the Work.

    Raises:
        ValueError: a tensor without dimensions, or as in `allreduce`.
        Mismatch: ranks have other dtypes or shapes of rows. Every rank gets it, and the group goes
            on.
        Others as `allreduce`.

    Example:
        >>> rows = torch.full((bf.rank(), 2), bf.rank())
        >>> bf.collectives.allgather(rows)[:, 0].tolist()
        [1, 2, 2, 3, 3, 3]
    """
    member = calls.member_for("allgather", tensor, group)
    if tensor.requires_grad and keeps_graph(async_op):
        return _run("allgather", member, tensor)
    others = calls.rows_of_others(member, tensor, async_op)
    if async_op:
        return AllgatherWork(member, tensor, others)
    return torch.cat(calls.with_own(member, tensor.detach(), others))


class AllgatherWork(dist.Work):
    """An AllgatherWork is the Work of an `allgather`; `result` gathers the rows each time.

    Thread safety: any thread may call its methods. It owns a reference to this rank's tensor and
    the messages of the others, until it is dropped.

    Example:
        >>> work = bf.collectives.allgather(torch.tensor([bf.rank()]), async_op=True)
        >>> isinstance(work, bf.collectives.AllgatherWork), work.wait()
        (True, True)
        >>> work.result()[0].tolist()
        [0, 1, 2, 3]
    """

    def __init__(self, member: GroupState, tensor: Tensor, others: dist.Work) -> None:
        super().__init__()
        self._member, self._tensor, self._others = member, tensor.detach(), others

    def wait(self, *args: Any) -> bool:
        return self._others.wait(*args)

    def is_completed(self) -> bool:
        return self._others.is_completed()

    def is_success(self) -> bool:
        return self._others.is_success()

    def exception(self) -> Any:
        return self._others.exception()

    def result(self) -> list[Tensor]:
        return [torch.cat(calls.with_own(self._member, self._tensor, self._others.result()))]

    def get_future(self) -> Any:
        def rows(done: Any) -> list[Tensor]:
            done.wait()  # raises the operation's error, if it failed
            return self.result()

        return self._others.get_future().then(rows)


def _run(op: str, member: GroupState, *args: Any, **options: Any) -> Tensor:
    """Call the operator of torch.ops.bluefog, through which gradients go."""
    run = getattr(torch.ops.bluefog, op)
    result: Tensor = run(*args, **options, group_name=member.group.group_name)
    return result


def _count_change(tensor: Tensor) -> None:
    """Tell autograd that the tensor changes, as it does not see the backend's operations."""
    torch.autograd.graph.increment_version(tensor)
