"""The numbers by which operations of a name match."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState

# Tags next to each other that belong to an operation and its derivatives (kOrders in Frame.hpp).
_ORDERS = 16


def digest_of(given: bytes) -> int:
    """A number of seven bytes, which differs where what is given differs."""
    return int.from_bytes(hashlib.blake2b(given, digest_size=7).digest(), "little")


@lru_cache(maxsize=4096)
def tag_of(name: str) -> int:
    """The number by which operations of that name match, not 0; see `tag_of_gradient`."""
    return (digest_of(name.encode(errors="surrogatepass")) + 1) * _ORDERS


def named_tag(member: GroupState, op: str, name: Any) -> int:
    """`tag_of` a name that a user gave."""
    if not isinstance(name, str):
        raise TypeError(f"{member.who} {op}: name must be a str, got {type(name).__name__}")
    return tag_of(name)


def tag_of_gradient(tag: int) -> int:
    """Return the tag of an operation's gradient.

    No operation has it, and neither has the gradient of that gradient.
    """
    order = tag % _ORDERS
    return tag - order + (order + 1) % _ORDERS
