"""Averages of all buckets, and how many there were."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bluefog_pg.optim.communication import Finish


@dataclass
class ExchangeStats:
    """What an optimizer has exchanged, and how long it has waited."""

    exchanges: int = 0
    waited: float = 0.0  # seconds


class Exchange:
    """Averages under way, each of which ends in the tensor that it began with."""

    def __init__(self, stats: ExchangeStats) -> None:
        self._stats = stats
        self._ends: list[Finish] = []
        stats.exchanges += 1

    def add(self, end: Finish) -> None:
        self._ends.append(end)

    def finish(self) -> None:
        """Once."""
        begun = time.perf_counter()
        while self._ends:
            self._ends.pop(0)()
        self._stats.waited += time.perf_counter() - begun
