"""What the operations between neighbours have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from bluefog_pg._member import Member

# Tags next to each other that belong to an operation and its derivatives (kNames in Frame.hpp).
_ORDERS = 16

_USUAL = {torch.Tensor, torch.nn.Parameter}


@lru_cache(maxsize=4096)
def tag_of(name: str) -> int:
    """The number by which operations of that name match, not 0; see `tag_of_gradient`."""
    number = int.from_bytes(
        hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=7).digest(), "little"
    )
    return (number + 1) * _ORDERS


def named_tag(member: Member, op: str, name: Any) -> int:
    """`tag_of` a name that a user gave."""
    if not isinstance(name, str):
        raise TypeError(f"{member.who} {op}: name must be a str, got {type(name).__name__}")
    return tag_of(name)


def tag_of_gradient(tag: int) -> int:
    """Of an operation's gradient, so that this never meets an operation, nor its own gradient."""
    order = tag % _ORDERS
    return tag - order + (order + 1) % _ORDERS


def require_tensor(member: Member, op: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        one_by_one = "; it takes one, not a list" if isinstance(tensor, list | tuple) else ""
        raise TypeError(
            f"{member.who} {op}: expected a torch.Tensor, got {type(tensor).__name__}{one_by_one}"
        )


def list_of(member: Member, op: str, tensors: Any) -> list[torch.Tensor]:
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
