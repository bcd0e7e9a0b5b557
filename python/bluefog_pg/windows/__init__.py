"""Windows: memory of each rank that the others read and write while it computes."""

from bluefog_pg.windows import by_name
from bluefog_pg.windows.by_name import *  # noqa: F403
from bluefog_pg.windows.by_name import window_stats
from bluefog_pg.windows.window import Window

__all__ = ["Window", "window_stats"]
__all__ += by_name.__all__
