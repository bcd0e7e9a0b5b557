"""This module makes tags, the numbers by which operations of the same name match."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState

# An operation and its derivatives have this many consecutive tags (kOrders in Frame.hpp).
_ORDERS = 16


def digest_of(given: bytes) -> int:
    """Return a digest of seven bytes, as a number, which practically never repeats."""
    return int.from_bytes(hashlib.blake2b(given, digest_size=7).digest(), "little")


@lru_cache(maxsize=4096)
def tag_of(name: str) -> int:
    """Return the tag of operations of that name, which is never 0; see `tag_of_gradient`."""
    return (digest_of(name.encode(errors="surrogatepass")) + 1) * _ORDERS


def named_tag(member: GroupState, op: str, name: Any) -> int:
    """Return the tag of a name that a user gave; raise TypeError unless it is a str."""
    if not isinstance(name, str):
        raise TypeError(f"{member.who} {op}: name must be a str, got {type(name).__name__}")
    return tag_of(name)


def tag_of_gradient(tag: int) -> int:
    """Return the tag of an operation's gradient.

    No operation has this tag, and the gradient of that gradient has yet another one.
    """
    order = tag % _ORDERS
    return tag - order + (order + 1) % _ORDERS
