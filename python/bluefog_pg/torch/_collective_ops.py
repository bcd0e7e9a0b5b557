"""This module has BlueFog's collectives, which are those of `collectives`.

Calls that have a name match by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg import collectives
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.groups import resolve
from bluefog_pg.torch import _named_collectives
from bluefog_pg.torch._run import handles, issued, of_work, one_name, waited_for

if TYPE_CHECKING:
    from torch import Tensor


def allreduce(
    tensor: Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: str | None = None,
) -> Tensor:
    """Return the mean of all ranks' tensors, or their sum, in a new tensor.

    The call is differentiable, as `bluefog_pg.collectives.allreduce` is.

    Args:
        tensor: any shape, the same on all ranks.
        average: divide the sum by the number of ranks.
        is_hierarchical_local: reduce over the ranks of this machine alone. A string, as BlueFog's
            first versions had in this place, is the name.
        name: the operation's name; only one of a name may be under way. Calls of one name match, in
            whatever order ranks begin them. Calls without a name match in their order, and send
            less.

    Raises:
        ArgumentError: the average of integers (a ValueError and an AssertionError).
        ValueError: a bad tensor; ranks disagree; the name is taken; operations are suspended.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.allreduce(torch.full((2,), float(bf.rank())), name="x").tolist()
        [1.5, 1.5]
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
    """Begin an `allreduce`, and return a handle for `synchronize` and `poll`.

    The call is not differentiable.

    Args:
        tensor, average, is_hierarchical_local, name: as in `allreduce`.

    Raises:
        The errors of `allreduce`; those of ranks that disagree come in `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> handle = bf.allreduce_nonblocking(torch.full((2,), bf.rank()), average=False)
        >>> bf.synchronize(handle).tolist()
        [6, 6]
    """
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
    """Do `allreduce` in place, and return `tensor`.

    The call is not differentiable.

    Args:
        tensor, average, is_hierarchical_local, name: as in `allreduce`; `tensor` changes.

    Raises:
        The errors of `allreduce`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.allreduce_(x) is x, x.tolist()
        (True, [1.5, 1.5])
    """
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
    """Begin an `allreduce_`, and return a handle for `synchronize` and `poll`.

    `synchronize` returns `tensor`.

    Args:
        tensor, average, is_hierarchical_local, name: as in `allreduce`; `tensor` changes.

    Raises:
        The errors of `allreduce`; those of ranks that disagree come in `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.synchronize(bf.allreduce_nonblocking_(x)) is x, x.tolist()
        (True, [1.5, 1.5])
    """
    is_local, name = _local_and_name(is_hierarchical_local, name)
    return issued(
        "allreduce",
        name,
        lambda: _allreduce_(tensor, average, is_local, name, True),
    )


def broadcast(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """Return the root's tensor, in a new one, on every rank.

    The call is differentiable, as `bluefog_pg.collectives.broadcast` is.

    Args:
        tensor: any shape, the same on all ranks.
        root_rank: the same on all ranks.
        name: as in `allreduce`.

    Raises:
        ValueError: a bad tensor or root; ranks disagree, also on the root; the name is taken;
            operations are suspended.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.broadcast(torch.full((2,), bf.rank()), root_rank=3).tolist()
        [3, 3]
    """
    result: Tensor = waited_for(
        "broadcast", name, lambda: _broadcast(tensor, root_rank, name, False)
    )
    return result


def broadcast_nonblocking(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """Begin a `broadcast`, and return a handle for `synchronize` and `poll`.

    The call is not differentiable.

    Args:
        tensor, root_rank, name: as in `broadcast`.

    Raises:
        The errors of `broadcast`; those of ranks that disagree come in `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> handle = bf.broadcast_nonblocking(torch.full((2,), bf.rank()), root_rank=2)
        >>> bf.synchronize(handle).tolist()
        [2, 2]
    """
    return issued("broadcast", name, lambda: _broadcast(tensor, root_rank, name, True))


def broadcast_(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """Do `broadcast` in place, and return `tensor`.

    The call is not differentiable.

    Args:
        tensor, root_rank, name: as in `broadcast`; `tensor` changes.

    Raises:
        The errors of `broadcast`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), bf.rank())
        >>> bf.broadcast_(x, root_rank=1) is x, x.tolist()
        (True, [1, 1])
    """
    result: Tensor = waited_for(
        "broadcast", name, lambda: _broadcast_(tensor, root_rank, name, False)
    )
    return result


def broadcast_nonblocking_(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """Begin a `broadcast_`, and return a handle for `synchronize` and `poll`.

    `synchronize` returns `tensor`.

    Args:
        tensor, root_rank, name: as in `broadcast`; `tensor` changes.

    Raises:
        The errors of `broadcast`; those of ranks that disagree come in `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), bf.rank())
        >>> bf.synchronize(bf.broadcast_nonblocking_(x, root_rank=1)) is x, x.tolist()
        (True, [1, 1])
    """
    return issued("broadcast", name, lambda: _broadcast_(tensor, root_rank, name, True))


def allgather(tensor: Tensor, name: str | None = None) -> Tensor:
    """Return all ranks' tensors one after the other, along the first dimension.

    The call is differentiable, as `bluefog_pg.collectives.allgather` is.

    Args:
        tensor: (rows, ...); ranks may have different numbers of rows, also none.
        name: as in `allreduce`.

    Raises:
        ValueError: a tensor without dimensions; on every rank, ranks have other dtypes or shapes
            of rows; the name is taken; operations are suspended.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.allgather(torch.full((bf.rank(),), bf.rank())).tolist()
        [1, 2, 2, 3, 3, 3]
    """
    result: Tensor = waited_for("allgather", name, lambda: _allgather(tensor, name, False))
    return result


def allgather_nonblocking(tensor: Tensor, name: str | None = None) -> int:
    """Begin an `allgather`, and return a handle for `synchronize` and `poll`.

    The call is not differentiable.

    Args:
        tensor, name: as in `allgather`.

    Raises:
        The errors of `allgather`; those of ranks that disagree come in `synchronize`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.synchronize(bf.allgather_nonblocking(torch.tensor([bf.rank()]))).tolist()
        [0, 1, 2, 3]
    """
    return issued("allgather", name, lambda: _allgather(tensor, name, True))


def barrier() -> None:
    """Wait until all ranks are here, and all operations that this one began before have ended.

    Raises:
        ValueError: operations are suspended; ranks are in another collective (`Mismatch`).
        PeerFailed, CollectiveTimeout: a rank died, or did not come.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> handle = bf.allreduce_nonblocking(torch.ones(2))
        >>> bf.barrier()
        >>> bf.poll(handle), bf.synchronize(handle).tolist()
        (True, [1.0, 1.0])
    """
    member = member_of(None)

    def meet() -> None:
        for window in list(member.windows.values()):
            window.flush()
        dist.barrier()
        # This wait must not come before the barrier: another rank may begin its part of an
        # operation after its own barrier.
        handles.wait_for_all()

    waited_for("barrier", None, meet)


def broadcast_object(
    obj: Any,
    src: int = 0,
    device: Any = None,
    name: str | None = None,
) -> Any:
    """Return the source's object, on every rank, by pickle.

    Use it with ranks that you trust: pickle runs what they send. Asyncddp has this function.

    Args:
        obj: an object that can be pickled; only the source's matters.
        src: the source's rank.
        device: where the bytes travel; None, the CPU.
        name: the operation's name; only one of a name may be under way.

    Raises:
        ValueError: the name is taken; operations are suspended.
        Others as torch.distributed.broadcast_object_list.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.broadcast_object({"from": bf.rank()}, src=2)
        {'from': 2}
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
    """Replace the objects of a list by the source's, by pickle.

    The list must be as long on all ranks. Asyncddp has this function.

    Args:
        object_list: objects that can be pickled; it changes.
        src: the source's rank; None is rank 0.
        device, name: as in `broadcast_object`.

    Raises:
        The errors of `broadcast_object`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> objects = [bf.rank(), "a" * bf.rank()]
        >>> bf.broadcast_object_list(objects, src=2)
        >>> objects
        [2, 'aa']
    """
    resolve(None)
    waited_for(
        "broadcast_object",
        name,
        lambda: dist.broadcast_object_list(object_list, src or 0, device=device),
    )


_plain: Any = collectives  # The overloads' types take no bool that is a variable.


def _allreduce(
    tensor: Tensor, average: bool, is_local: bool, name: str | None, async_op: bool
) -> Any:
    if name is not None and _matches_by_name(tensor):
        return _named_collectives.allreduce(tensor, average, is_local, name, async_op)
    done = _plain.allreduce(tensor, average, is_hierarchical_local=is_local, async_op=async_op)
    return of_work(done) if async_op else done


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
    return of_work(done) if async_op else done


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
    return of_work(done) if async_op else done


def _matches_by_name(tensor: Any) -> bool:
    """Return whether the tensor's operations match by name; an accelerator's match by order."""
    return not isinstance(tensor, torch.Tensor) or tensor.device.type == "cpu"


def _into(tensor: Tensor, done: Any, async_op: bool) -> Any:
    """Write an operation's result into the tensor, at once or in the function that returns it."""

    def write(result: Tensor) -> Tensor:
        with torch.no_grad():
            return tensor.copy_(result)

    if not async_op:
        return write(done)
    work, result = done
    return work, lambda: write(result())


def _local_and_name(given: bool | str, name: str | None) -> tuple[bool, str | None]:
    return (False, one_name("allreduce", given, name)) if isinstance(given, str) else (given, name)
