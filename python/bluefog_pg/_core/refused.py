"""This module counts calls that refuse their arguments."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.tags import tag_of

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState


def count_refused(member: GroupState, tensor: Any, name: Any) -> None:
    """Count a call that is refused before the backend sees it.

    It exchanges nothing. If the call were not counted, this rank's later calls would meet earlier
    calls of other ranks.
    """
    member.backend.count_refused(_tag(tensor, name))


def count_refused_pair(member: GroupState, tensor: Any, target_rank: Any, name: Any) -> None:
    """Count a refused call of two ranks, such as `pair_gossip`, before the backend sees it.

    It does nothing if `target_rank` is no other rank of the group.
    """
    try:
        target = operator.index(target_rank)
    except TypeError:
        return
    if 0 <= target < member.size and target != member.rank:
        member.backend.count_refused(_tag(tensor, name), target)


def _tag(tensor: Any, name: Any) -> int:
    """Return the tag that a call is counted by.

    All calls with an accelerator's tensors are counted together, whatever their names, by the tag
    0.
    """
    first = tensor[0] if isinstance(tensor, list | tuple) and tensor else tensor
    is_there = getattr(getattr(first, "device", None), "type", "cpu") != "cpu"
    return 0 if is_there or not isinstance(name, str) else tag_of(name)
