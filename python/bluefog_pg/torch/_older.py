"""This module has functions by their names in BlueFog's first versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluefog_pg.torch._collective_ops import (
    allgather_nonblocking,
    allreduce_nonblocking,
    broadcast_nonblocking,
    broadcast_nonblocking_,
)
from bluefog_pg.torch._neighbor_ops import (
    neighbor_allgather_nonblocking,
    neighbor_allreduce_nonblocking,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def allreduce_async(tensor: Tensor, average: bool = True, name: str | None = None) -> int:
    """Do what `allreduce_nonblocking` does, by its name in BlueFog's first versions.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.wait(bf.allreduce_async(torch.full((2,), float(bf.rank())))).tolist()
        [1.5, 1.5]
    """
    return allreduce_nonblocking(tensor, average, name=name)


def allgather_async(tensor: Tensor, name: str | None = None) -> int:
    """Do what `allgather_nonblocking` does, by its name in BlueFog's first versions.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.wait(bf.allgather_async(torch.tensor([bf.rank()]))).tolist()
        [0, 1, 2, 3]
    """
    return allgather_nonblocking(tensor, name)


def broadcast_async(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """Do what `broadcast_nonblocking` does, by its name in BlueFog's first versions.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.wait(bf.broadcast_async(torch.tensor([bf.rank()]), root_rank=3)).tolist()
        [3]
    """
    return broadcast_nonblocking(tensor, root_rank, name)


def broadcast_async_(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """Do what `broadcast_nonblocking_` does, by its name in BlueFog's first versions.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.tensor([bf.rank()])
        >>> bf.wait(bf.broadcast_async_(x, root_rank=3)) is x, x.tolist()
        (True, [3])
    """
    return broadcast_nonblocking_(tensor, root_rank, name)


def neighbor_allgather_async(tensor: Tensor, name: str | None = None) -> int:
    """Do what `neighbor_allgather_nonblocking` does, by its name in BlueFog's first versions.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> handle = bf.neighbor_allgather_async(torch.tensor([bf.rank()]))
        >>> bf.wait(handle).tolist() == bf.in_neighbor_ranks()
        True
    """
    return neighbor_allgather_nonblocking(tensor, name=name)


def neighbor_allreduce_async(
    tensor: Tensor,
    self_weight: float | bool | None = None,
    neighbor_weights: Mapping[int, float] | str | None = None,
    name: str | None = None,
    *,
    average: bool | None = None,
) -> int:
    """Do what `neighbor_allreduce_nonblocking` does over the topology, by its first name.

    `neighbor_weights` are `src_weights`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.wait(bf.neighbor_allreduce_async(torch.ones(2), average=False)).tolist()
        [3.0, 3.0]
    """
    return neighbor_allreduce_nonblocking(
        tensor, self_weight, neighbor_weights, name=name, average=average
    )
