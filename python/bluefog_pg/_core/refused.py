"""Calls that refuse their arguments."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.tags import tag_of

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState


def count_refused(member: GroupState, tensor: Any, name: Any) -> None:
    """Count a call that is refused before the backend sees it.

    It exchanges nothing. Without that, this rank's later calls would meet earlier ones of others.
    """
    member.backend.count_refused(_tag(tensor, name))


def count_refused_pair(member: GroupState, tensor: Any, target_rank: Any, name: Any) -> None:
    """The same of a call that is counted for two ranks."""
    try:
        target = operator.index(target_rank)
    except TypeError:
        return
    if 0 <= target < member.size and target != member.rank:
        member.backend.count_refused(_tag(tensor, name), target)


def _tag(tensor: Any, name: Any) -> int:
    """An accelerator's calls are counted together, whatever their names."""
    first = tensor[0] if isinstance(tensor, list | tuple) and tensor else tensor
    is_there = getattr(getattr(first, "device", None), "type", "cpu") != "cpu"
    return 0 if is_there or not isinstance(name, str) else tag_of(name)
