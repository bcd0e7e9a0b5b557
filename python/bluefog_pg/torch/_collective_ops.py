"""BlueFog's collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from bluefog_pg import collectives
from bluefog_pg._groups import resolve
from bluefog_pg.torch._run import issued, waited_for

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg._handles import Started


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
        name: of which only one may be under way.

    Raises:
        ArgumentError: the average of integers (a ValueError and an AssertionError).
        ValueError: a bad tensor; ranks disagree; the name is taken; operations are suspended.
    """
    is_local, name = _local_and_name(is_hierarchical_local, name)
    return waited_for(
        "allreduce",
        name,
        lambda: collectives.allreduce(tensor, average, is_hierarchical_local=is_local),
    )


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
        lambda: _of_work(
            collectives.allreduce(tensor, average, is_hierarchical_local=is_local, async_op=True)
        ),
    )


def allreduce_(
    tensor: Tensor,
    average: bool = True,
    is_hierarchical_local: bool = False,
    name: str | None = None,
) -> Tensor:
    """`allreduce` in place; gives `tensor` back. Not differentiable."""
    is_local, name = _local_and_name(is_hierarchical_local, name)
    return waited_for(
        "allreduce",
        name,
        lambda: collectives.allreduce_(tensor, average, is_hierarchical_local=is_local),
    )


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
        lambda: (
            collectives.allreduce_(tensor, average, is_hierarchical_local=is_local, async_op=True),
            lambda: tensor,
        ),
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
    return waited_for("broadcast", name, lambda: collectives.broadcast(tensor, root_rank))


def broadcast_nonblocking(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """`broadcast`, begun: a handle for `synchronize` and `poll`. Not differentiable."""
    return issued(
        "broadcast",
        name,
        lambda: _of_work(collectives.broadcast(tensor, root_rank, async_op=True)),
    )


def broadcast_(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """`broadcast` in place; gives `tensor` back. Not differentiable."""
    return waited_for("broadcast", name, lambda: collectives.broadcast_(tensor, root_rank))


def broadcast_nonblocking_(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """`broadcast_`, begun: a handle for `synchronize`, which gives `tensor` back, and `poll`."""
    return issued(
        "broadcast",
        name,
        lambda: (collectives.broadcast_(tensor, root_rank, async_op=True), lambda: tensor),
    )


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
    return waited_for("allgather", name, lambda: collectives.allgather(tensor))


def allgather_nonblocking(tensor: Tensor, name: str | None = None) -> int:
    """`allgather`, begun: a handle for `synchronize` and `poll`. Not differentiable."""
    return issued("allgather", name, lambda: _of_work(collectives.allgather(tensor, async_op=True)))


def barrier() -> None:
    """Wait until all ranks are here."""
    resolve(None)
    waited_for("barrier", None, dist.barrier)


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


def _of_work(work: dist.Work) -> Started:
    return work, lambda: work.result()[0]


def _local_and_name(given: bool | str, name: str | None) -> tuple[bool, str | None]:
    return (False, given) if isinstance(given, str) else (given, name)
