"""Windows: memory of each rank that the others read and write while it computes."""

from bluefog_pg.windows._switch import (
    turn_off_win_ops_with_associated_p,
    turn_on_win_ops_with_associated_p,
)
from bluefog_pg.windows.by_name import (
    get_current_created_window_names,
    get_win_version,
    neighbor_win_accumulate,
    neighbor_win_accumulate_nonblocking,
    neighbor_win_get,
    neighbor_win_get_nonblocking,
    neighbor_win_put,
    neighbor_win_put_nonblocking,
    win_associated_p,
    win_create,
    win_fence,
    win_free,
    win_lock,
    win_mutex,
    win_poll,
    win_read_neighbor,
    win_update,
    win_update_then_collect,
    win_wait,
    window_stats,
)
from bluefog_pg.windows.window import Window

# BlueFog's shorter names.
win_put = neighbor_win_put
win_put_nonblocking = neighbor_win_put_nonblocking
win_accumulate = neighbor_win_accumulate
win_accumulate_nonblocking = neighbor_win_accumulate_nonblocking
win_get = neighbor_win_get
win_get_nonblocking = neighbor_win_get_nonblocking

__all__ = [
    "Window",
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
    "win_accumulate_nonblocking",
    "win_associated_p",
    "win_create",
    "win_fence",
    "win_free",
    "win_get",
    "win_get_nonblocking",
    "win_lock",
    "win_mutex",
    "win_poll",
    "win_put",
    "win_put_nonblocking",
    "win_read_neighbor",
    "win_update",
    "win_update_then_collect",
    "win_wait",
    "window_stats",
]
