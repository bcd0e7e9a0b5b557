"""This module has BlueFog's operations and basics, as in BlueFog, and waits for handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluefog_pg.torch import _windows_by_name, basics
from bluefog_pg.torch._collective_ops import (
    allgather,
    allgather_nonblocking,
    allreduce,
    allreduce_,
    allreduce_nonblocking,
    allreduce_nonblocking_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_nonblocking,
    broadcast_nonblocking_,
    broadcast_object,
    broadcast_object_list,
)
from bluefog_pg.torch._neighbor_ops import (
    hierarchical_neighbor_allreduce,
    hierarchical_neighbor_allreduce_nonblocking,
    neighbor_allgather,
    neighbor_allgather_nonblocking,
    neighbor_allreduce,
    neighbor_allreduce_nonblocking,
    pair_gossip,
    pair_gossip_nonblocking,
)
from bluefog_pg.torch._older import (
    allgather_async,
    allreduce_async,
    broadcast_async,
    broadcast_async_,
    neighbor_allgather_async,
    neighbor_allreduce_async,
)
from bluefog_pg.torch._run import handles
from bluefog_pg.torch._windows_by_name import *  # noqa: F403
from bluefog_pg.torch.basics import *  # noqa: F403

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "allgather",
    "allgather_async",
    "allgather_nonblocking",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_nonblocking",
    "allreduce_nonblocking_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_nonblocking",
    "broadcast_nonblocking_",
    "broadcast_object",
    "broadcast_object_list",
    "hierarchical_neighbor_allreduce",
    "hierarchical_neighbor_allreduce_nonblocking",
    "neighbor_allgather",
    "neighbor_allgather_async",
    "neighbor_allgather_nonblocking",
    "neighbor_allreduce",
    "neighbor_allreduce_async",
    "neighbor_allreduce_nonblocking",
    "pair_gossip",
    "pair_gossip_nonblocking",
    "poll",
    "synchronize",
    "wait",
]
__all__ += [*_windows_by_name.__all__, *basics.__all__]


def poll(handle: int) -> bool:
    """Return whether the operation has ended, well or not: `synchronize` will not wait.

    Args:
        handle: what a nonblocking operation returned.

    Raises:
        ValueError: no operation has this handle.

    Example:
        >>> import time
        >>> import bluefog_pg.torch as bf
        >>> handle = bf.allreduce_nonblocking(torch.ones(2))
        >>> while not bf.poll(handle):
        ...     time.sleep(0.001)
        >>> bf.synchronize(handle).tolist()
        [1.0, 1.0]
    """
    return handles.poll(handle)


def synchronize(handle: int) -> Tensor:
    """Wait for the operation, forget its handle, and return its result.

    Args:
        handle: what a nonblocking operation returned.

    Raises:
        ValueError: no operation has this handle.
        Others as the operation.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.synchronize(bf.allreduce_nonblocking(torch.ones(2), average=False)).tolist()
        [4.0, 4.0]
    """
    return handles.take(handle)


def wait(handle: int) -> Tensor:
    """Do what `synchronize` does, by another name.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.wait(bf.allreduce_nonblocking(torch.ones(2), average=False)).tolist()
        [4.0, 4.0]
    """
    return synchronize(handle)
