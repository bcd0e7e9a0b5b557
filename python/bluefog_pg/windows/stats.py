"""This module counts what has come into windows and gone out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.group_state import member_of

if TYPE_CHECKING:
    import torch.distributed as dist


def window_stats(
    group: dist.ProcessGroup | None = None,
) -> dict[str, dict[str, dict[int, dict[str, float]]]]:
    """Return what has come to and gone from each window of the group.

    Args:
        group: the process group; None, the default one.

    Returns:
        {window: {"from": {rank: ...}, "to": {rank: ...}}}. "from" has for each source `changes` in
        all, `version` (changes since the last update), `age` of the last one in seconds, and `p` of
        its slot. "to" has for each rank that this one has written to `puts` (and accumulations),
        their `bytes`, and calls that were `dropped` since the rank was dead, gets included.

    Raises:
        NotRunning: there is no default process group.

    Example:
        >>> window = bf.Window(torch.ones(4), "w")
        >>> window.put()
        >>> window.fence()
        >>> stats = bf.window_stats()["w"]
        >>> [(to["puts"], to["bytes"]) for to in stats["to"].values()]
        [(1, 16), (1, 16)]
        >>> [source["changes"] for source in stats["from"].values()]
        [1, 1]
        >>> window.free()
    """
    return {
        name: {
            "from": _plain(window.states(), ("changes", "version", "age", "p")),
            "to": _plain(window.sent(), ("puts", "bytes", "dropped")),
        }
        for name, window in sorted(member_of(group).windows.items())
    }


def _plain(of: Mapping[int, Any], fields: Sequence[str]) -> dict[int, dict[str, float]]:
    return {rank: {field: getattr(it, field) for field in fields} for rank, it in of.items()}
