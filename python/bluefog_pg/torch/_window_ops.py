"""BlueFog's windows, and the names that its first versions had for them."""

from __future__ import annotations

from bluefog_pg.windows import (
    get_current_created_window_names,
    get_win_version,
    neighbor_win_accumulate,
    neighbor_win_accumulate_nonblocking,
    neighbor_win_get,
    neighbor_win_get_nonblocking,
    neighbor_win_put,
    neighbor_win_put_nonblocking,
    turn_off_win_ops_with_associated_p,
    turn_on_win_ops_with_associated_p,
    win_accumulate,
    win_accumulate_nonblocking,
    win_associated_p,
    win_create,
    win_fence,
    win_free,
    win_get,
    win_get_nonblocking,
    win_lock,
    win_mutex,
    win_poll,
    win_put,
    win_put_nonblocking,
    win_read_neighbor,
    win_update,
    win_update_then_collect,
    win_wait,
)

win_put_async = neighbor_win_put_nonblocking
win_accumulate_async = neighbor_win_accumulate_nonblocking
win_get_async = neighbor_win_get_nonblocking
win_sync = win_update
win_sync_then_collect = win_update_then_collect

__all__ = [
    "get_current_created_window_names",
    "get_win_version",
    "neighbor_win_accumulate",
    "neighbor_win_accumulate_nonblocking",
    "neighbor_win_get",
    "neighbor_win_get_nonblocking",
    "neighbor_win_put",
    "neighbor_win_put_nonblocking",
    "turn_off_win_ops_with_associated_p",
    "turn_on_win_ops_with_associated_p",
    "win_accumulate",
    "win_accumulate_async",
    "win_accumulate_nonblocking",
    "win_associated_p",
    "win_create",
    "win_fence",
    "win_free",
    "win_get",
    "win_get_async",
    "win_get_nonblocking",
    "win_lock",
    "win_mutex",
    "win_poll",
    "win_put",
    "win_put_async",
    "win_put_nonblocking",
    "win_read_neighbor",
    "win_sync",
    "win_sync_then_collect",
    "win_update",
    "win_update_then_collect",
    "win_wait",
]
