"""This module has exchanges, which are averages of all buckets, and counts them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bluefog_pg.optim.communication import Finish


@dataclass
class ExchangeStats:
    """An ExchangeStats counts an optimizer's exchanges, and how long this rank waited for them."""

    exchanges: int = 0
    waited: float = 0.0  # in seconds


class Exchange:
    """An Exchange has the averages that are under way; each ends in the tensor it began with."""

    def __init__(self, stats: ExchangeStats) -> None:
        self._stats = stats
        self._ends: list[Finish] = []
        stats.exchanges += 1

    def add(self, end: Finish) -> None:
        self._ends.append(end)

    def finish(self) -> None:
        """Wait for all averages, and add the time to the statistics. A second call does nothing."""
        begun = time.perf_counter()
        while self._ends:
            self._ends.pop(0)()
        self._stats.waited += time.perf_counter() - begun
