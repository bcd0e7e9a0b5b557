"""This module gives all ranks the same state, before a training or after they drifted apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map_only

from bluefog_pg import collectives
from bluefog_pg._core.group_state import member_of

if TYPE_CHECKING:
    from torch.optim import Optimizer

    # These are the types that `state_dict()`, `parameters()` and `named_parameters()` return.
    Tensors = Mapping[str, Tensor] | Iterable[Tensor] | Iterable[tuple[str, Tensor]]


@torch.no_grad()
def broadcast_parameters(
    params: Tensors, root_rank: int, group: dist.ProcessGroup | None = None
) -> None:
    """Give all ranks the root's tensors, in place. BlueFog has this function.

    Args:
        params: a `state_dict()`, `parameters()`, `named_parameters()`, or lists like these; the
            same on all ranks.
        root_rank: a rank of the group.
        group: the process group; None, the default one.

    Raises:
        TypeError: `params` is none of these.
        Others as `torch.distributed.broadcast`.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> _ = torch.nn.init.constant_(layer.weight, bf.rank())
        >>> bf.broadcast_parameters(layer.state_dict(), root_rank=2)
        >>> layer.weight.tolist()
        [[2.0, 2.0]]
    """
    _waited_for(
        [
            collectives.broadcast_(tensor, root_rank, group, async_op=True)
            for tensor in _tensors_of("broadcast_parameters", params, group)
        ]
    )


@torch.no_grad()
def allreduce_parameters(params: Tensors, group: dist.ProcessGroup | None = None) -> None:
    """Give all ranks the mean of their tensors, in place; integers (counters) stay as they are.

    BlueFog has this function.

    Args:
        params, group: as in `broadcast_parameters`.

    Raises:
        TypeError: `params` is none of these.
        Others as `torch.distributed.all_reduce`.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> _ = torch.nn.init.constant_(layer.weight, bf.rank())
        >>> bf.allreduce_parameters(layer.parameters())
        >>> layer.weight.tolist()
        [[1.5, 1.5]]
    """
    _waited_for(
        [
            collectives.allreduce_(tensor, group=group, async_op=True)
            for tensor in _tensors_of("allreduce_parameters", params, group)
            if tensor.is_floating_point() or tensor.is_complex()
        ]
    )


def broadcast_optimizer_state(
    optimizer: Optimizer, root_rank: int, group: dist.ProcessGroup | None = None
) -> None:
    """Give all ranks the state and the options of the root's optimizer. BlueFog has this function.

    Args:
        optimizer: has parameters of the same shapes on all ranks.
        root_rank, group: as in `broadcast_parameters`.

    Raises:
        ValueError: the root's optimizer has other groups of parameters.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = torch.optim.SGD([w], lr=0.1 * (1 + bf.rank()))
        >>> bf.broadcast_optimizer_state(optimizer, root_rank=0)
        >>> optimizer.param_groups[0]["lr"]
        0.1
    """
    member = member_of(group)
    state: list[Any] = [None]
    if member.rank == root_rank:  # Others cannot load tensors of the root's own GPU.
        state = [tree_map_only(Tensor, Tensor.cpu, optimizer.state_dict())]
    dist.broadcast_object_list(state, group=member.group, group_src=root_rank)
    optimizer.load_state_dict(state[0])


def _tensors_of(op: str, params: Any, group: dist.ProcessGroup | None) -> list[Tensor]:
    if not isinstance(params, Iterable):
        raise TypeError(
            f"{member_of(group).who} {op}: expected a state_dict(), parameters() or "
            f"named_parameters(), got {type(params).__name__}"
        )
    named = sorted(params.items()) if isinstance(params, Mapping) else params
    tensors = [entry[1] if isinstance(entry, tuple) else entry for entry in named]
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{member_of(group).who} {op}: expected tensors, or pairs of a name and a tensor, "
                f"got {type(tensor).__name__}"
            )
        if hasattr(tensor, "to_local"):
            raise TypeError(
                f"{member_of(group).who} {op}: a DTensor of shape {list(tensor.shape)} has a shard "
                "on each rank, and only ranks that have the same shard can average it: give the "
                "shards, tensor.to_local(), and a group of such ranks"
            )
    return tensors


def _waited_for(works: Iterable[dist.Work]) -> None:
    for work in works:
        work.wait()
