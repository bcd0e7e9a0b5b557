"""Names of BlueFog's first versions."""

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
    """`allreduce_nonblocking`."""
    return allreduce_nonblocking(tensor, average, name=name)


def allgather_async(tensor: Tensor, name: str | None = None) -> int:
    """`allgather_nonblocking`."""
    return allgather_nonblocking(tensor, name)


def broadcast_async(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """`broadcast_nonblocking`."""
    return broadcast_nonblocking(tensor, root_rank, name)


def broadcast_async_(tensor: Tensor, root_rank: int, name: str | None = None) -> int:
    """`broadcast_nonblocking_`."""
    return broadcast_nonblocking_(tensor, root_rank, name)


def neighbor_allgather_async(tensor: Tensor, name: str | None = None) -> int:
    """`neighbor_allgather_nonblocking`."""
    return neighbor_allgather_nonblocking(tensor, name=name)


def neighbor_allreduce_async(
    tensor: Tensor,
    self_weight: float | bool | None = None,
    neighbor_weights: Mapping[int, float] | str | None = None,
    name: str | None = None,
    *,
    average: bool | None = None,
) -> int:
    """`neighbor_allreduce_nonblocking` over the topology; `neighbor_weights` are `src_weights`."""
    return neighbor_allreduce_nonblocking(
        tensor, self_weight, neighbor_weights, name=name, average=average
    )
