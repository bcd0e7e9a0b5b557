"""This module caches edges by a call's arguments, as programs repeat the same few weights.

Arguments that are found in a cache are not checked again.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bluefog_pg._C import Edges

    EdgeCache = dict[bytes | None, Edges]

_MOST = 1024
# Later formats of marshal may write equal values differently, as they mark what else refers to
# them.
_FORMAT = 2
_PLAIN = {type(None), int, float, list, tuple, dict}


def key_of(*given: Any) -> bytes | None:
    """Return the key of a call's arguments: numbers, and lists, tuples and dicts of numbers.

    The key tells types apart: 0.0 is no rank, though it equals 0.

    Returns:
        The key; None, if an argument is something else, such as a tensor, whose values may change.
    """
    if not _PLAIN.issuperset(map(type, given)):
        return None  # marshal would write numpy's arrays as their bytes.
    try:
        return marshal.dumps(given, _FORMAT)
    except ValueError:
        return None


def remember(known: EdgeCache, key: bytes | None, edges: Edges) -> Edges:
    if key is not None:
        if len(known) >= _MOST:
            known.clear()
        known[key] = edges
    return edges
