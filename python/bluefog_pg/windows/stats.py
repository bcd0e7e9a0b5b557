"""What has come into windows and gone out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.group_state import member_of

if TYPE_CHECKING:
    import torch.distributed as dist


def window_stats(
    group: dist.ProcessGroup | None = None,
) -> dict[str, dict[str, dict[int, dict[str, float]]]]:
    """What has come and gone, {window: {"from": {rank: ...}, "to": {rank: ...}}}.

    "from" each source: `changes` in all, `version` (those since the last update), `age` of the last
    in seconds and `p` of its slot. "to" each rank that this one has written to: `puts` (and
    accumulations), their `bytes`, and calls `dropped`, gets too, since it was dead.
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
