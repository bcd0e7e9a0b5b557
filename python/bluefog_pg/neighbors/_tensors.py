"""This module checks the tensors that users give to the operations between neighbors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState

_USUAL = {torch.Tensor, torch.nn.Parameter}


def require_tensor(member: GroupState, op: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        one_by_one = "; it takes one, not a list" if isinstance(tensor, list | tuple) else ""
        raise TypeError(
            f"{member.who} {op}: expected a torch.Tensor, got {type(tensor).__name__}{one_by_one}"
        )


def list_of(member: GroupState, op: str, tensors: Any) -> list[torch.Tensor]:
    listed = list(tensors) if isinstance(tensors, Iterable) else [tensors]
    if set(map(type, listed)) <= _USUAL:
        return listed
    strangers = [tensor for tensor in listed if not isinstance(tensor, torch.Tensor)]
    if strangers:
        raise TypeError(
            f"{member.who} {op}: expected a torch.Tensor or a list of them, "
            f"got {type(strangers[0] if isinstance(tensors, list | tuple) else tensors).__name__}"
        )
    return listed
