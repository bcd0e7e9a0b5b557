"""This package has windows: memory of each rank that others read and write while it computes."""

from bluefog_pg.windows.stats import window_stats
from bluefog_pg.windows.window import Window

__all__ = ["Window", "window_stats"]
