"""BlueFog's windows, and the names that its first versions had for them."""

from __future__ import annotations

from bluefog_pg.windows import by_name
from bluefog_pg.windows.by_name import *  # noqa: F403
from bluefog_pg.windows.by_name import (
    neighbor_win_accumulate_nonblocking,
    neighbor_win_get_nonblocking,
    neighbor_win_put_nonblocking,
    win_update,
    win_update_then_collect,
)

win_put_async = neighbor_win_put_nonblocking
win_accumulate_async = neighbor_win_accumulate_nonblocking
win_get_async = neighbor_win_get_nonblocking
win_sync = win_update
win_sync_then_collect = win_update_then_collect

__all__ = [
    "win_accumulate_async",
    "win_get_async",
    "win_put_async",
    "win_sync",
    "win_sync_then_collect",
]
__all__ += by_name.__all__
