"""BlueFog's collectives: those of `collectives`, or, where they have a name, matched by that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg import collectives
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.groups import resolve
from bluefog_pg.torch import _named_collectives
from bluefog_pg.torch._run import handles, issued, one_name, waited_for

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg._core.handles import Started


def allreduce(
    tensor: Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: str | None = None,
) -> Tensor:
    """The mean of all ranks' tensors, or their sum, in a new tensor.

    Differentiable. As `bluefog_pg.collectives.allreduce`.

    Args:
        tensor: any shape, the same on all ranks.
        average: divide the sum by the number of ranks.
        is_hierarchical_local: of the ranks of this machine alone. A string, as BlueFog's first
            versions had in this place, is the name.
        name: of which only one may be under way. Calls of one name match, in whatever order ranks
            begin them; those without a name match in the order of the calls, and send less.

    Raises:
        ArgumentError: the average of integers (a ValueError and an AssertionError).
        ValueError: a bad tensor; ranks disagree; the name is taken; operations are suspended.
    """
    is_local, name = _local_and_name(is_hierarchical_local, name)
    result: Tensor = waited_for(
        "allreduce",
        name,
        lambda: _allreduce(tensor, average, is_local, name, False),
    )
    return result


def allreduce_nonblocking(
    tensor: Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: str | None = None,
) -> int:
    """`allreduce`, begun: a handle for `synchronize` and `poll`. Not differentiable."""
    is_local, name = _local_and_name(is_hierarchical_local, name)
    return issued(
        "allreduce",
        name,
        lambda: _allreduce(tensor, average, is_local, name, True),
    )


def allreduce_(
    tensor: Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: str | None = None,
) -> Tensor:
    """`allreduce` in place; gives `tensor` back. Not differentiable."""
    is_local, name = _local_and_name(is_hierarchical_local, name)
    result: Tensor = waited_for(
        "allreduce",
        name,
        lambda: _allreduce_(tensor, average, is_local, name, False),
    )
    return result


def allreduce_nonblocking_(
    tensor: Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: str | None = None,
) -> int:
    """`allreduce_`, begun: a handle for `synchronize`, which gives `tensor` back, and `poll`."""
    is_local, name = _local_and_name(is_hierarchical_local, name)
    return issued(
        "allreduce",
        name,
        lambda: _allreduce_(tensor, average, is_local, name, True),
    )


def broadcast(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """The root's tensor, in a new one, on every rank.

    Differentiable. As `bluefog_pg.collectives.broadcast`.

    Args:
        tensor: any shape, the same on all ranks.
        root_rank: the same on all ranks.
        name: of which only one may be under way.

    Raises:
        ValueError: a bad tensor or root; ranks disagree, also on the root; the name is taken;
            operations are suspended.
    """
    result: Tensor = waited_for(
        "broadcast", name, lambda: _broadcast(tensor, root_rank, name, False)
    )
    return result


def broadcast_nonblocking(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """`broadcast`, begun: a handle for `synchronize` and `poll`. Not differentiable."""
    return issued("broadcast", name, lambda: _broadcast(tensor, root_rank, name, True))


def broadcast_(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """`broadcast` in place; gives `tensor` back. Not differentiable."""
    result: Tensor = waited_for(
        "broadcast", name, lambda: _broadcast_(tensor, root_rank, name, False)
    )
    return result


def broadcast_nonblocking_(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """`broadcast_`, begun: a handle for `synchronize`, which gives `tensor` back, and `poll`."""
    return issued("broadcast", name, lambda: _broadcast_(tensor, root_rank, name, True))


def allgather(tensor: Tensor, name: str | None = None) -> Tensor:
    """All ranks' tensors one after the other, along the first dimension.

    Differentiable. As `bluefog_pg.collectives.allgather`.

    Args:
        tensor: (rows, ...); ranks may have different numbers of rows, also none.
        name: of which only one may be under way.

    Raises:
        ValueError: a tensor without dimensions; on every rank, ranks have other dtypes or shapes
            of rows; the name is taken; operations are suspended.
    """
    result: Tensor = waited_for("allgather", name, lambda: _allgather(tensor, name, False))
    return result


def allgather_nonblocking(tensor: Tensor, name: str | None = None) -> int:
    """`allgather`, begun: a handle for `synchronize` and `poll`. Not differentiable."""
    return issued("allgather", name, lambda: _allgather(tensor, name, True))


def barrier() -> None:
    """Wait until all ranks are here, and all operations that this one began before have ended."""
    member = member_of(None)

    def meet() -> None:
        for window in list(member.windows.values()):
            window.flush()
        dist.barrier()
        # Not before: another rank may begin its part of one after its barrier.
        handles.wait_for_all()

    waited_for("barrier", None, meet)


def broadcast_object(
    obj: Any,
    src: int = 0,
    device: Any = None,
    name: str | None = None,
) -> Any:
    """The source's object, by pickle: from ranks that you trust.

    Args:
        obj: what can be pickled; only the source's matters.
        src: the source's rank.
        device: where the bytes travel; None, the CPU.
        name: of which only one may be under way.
    """
    objects = [obj]
    broadcast_object_list(objects, src, device, name)
    return objects[0]


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    device: Any = None,
    name: str | None = None,
) -> None:
    """`broadcast_object` of a list, in place; it must be as long on all ranks. None is rank 0."""
    resolve(None)
    waited_for(
        "broadcast_object",
        name,
        lambda: dist.broadcast_object_list(object_list, src or 0, device=device),
    )


_plain: Any = collectives  # whose overloads take no bool that is not written out


def _allreduce(
    tensor: Tensor, average: bool, is_local: bool, name: str | None, async_op: bool
) -> Any:
    if name is not None and _matches_by_name(tensor):
        return _named_collectives.allreduce(tensor, average, is_local, name, async_op)
    done = _plain.allreduce(tensor, average, is_hierarchical_local=is_local, async_op=async_op)
    return _of_work(done) if async_op else done


def _allreduce_(
    tensor: Tensor, average: bool, is_local: bool, name: str | None, async_op: bool
) -> Any:
    if name is not None and _matches_by_name(tensor):
        with torch.no_grad():
            done = _named_collectives.allreduce(tensor, average, is_local, name, async_op)
        return _into(tensor, done, async_op)
    done = _plain.allreduce_(tensor, average, is_hierarchical_local=is_local, async_op=async_op)
    return (done, lambda: tensor) if async_op else done


def _broadcast(tensor: Tensor, root_rank: int, name: str | None, async_op: bool) -> Any:
    if name is not None and _matches_by_name(tensor):
        return _named_collectives.broadcast(tensor, root_rank, name, async_op)
    done = _plain.broadcast(tensor, root_rank, async_op=async_op)
    return _of_work(done) if async_op else done


def _broadcast_(tensor: Tensor, root_rank: int, name: str | None, async_op: bool) -> Any:
    if name is not None and _matches_by_name(tensor):
        with torch.no_grad():
            done = _named_collectives.broadcast(tensor, root_rank, name, async_op)
        return _into(tensor, done, async_op)
    done = _plain.broadcast_(tensor, root_rank, async_op=async_op)
    return (done, lambda: tensor) if async_op else done


def _allgather(tensor: Tensor, name: str | None, async_op: bool) -> Any:
    if name is not None and _matches_by_name(tensor):
        return _named_collectives.allgather(tensor, name, async_op)
    done = _plain.allgather(tensor, async_op=async_op)
    return _of_work(done) if async_op else done


def _matches_by_name(tensor: Any) -> bool:
    """Whether operations of that tensor do: on an accelerator they match by their order alone."""
    return not isinstance(tensor, torch.Tensor) or tensor.device.type == "cpu"


def _into(tensor: Tensor, done: Any, async_op: bool) -> Any:
    """Have the tensor hold the result."""

    def write(result: Tensor) -> Tensor:
        with torch.no_grad():
            return tensor.copy_(result)

    if not async_op:
        return write(done)
    work, result = done
    return work, lambda: write(result())


def _of_work(work: dist.Work) -> Started:
    return work, lambda: work.result()[0]


def _local_and_name(given: bool | str, name: str | None) -> tuple[bool, str | None]:
    return (False, one_name("allreduce", given, name)) if isinstance(given, str) else (given, name)
