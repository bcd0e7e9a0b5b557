"""What an order works on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bluefog_pg._member import Member
    from bluefog_pg.optim.bucket import Bucket
    from bluefog_pg.optim.communication import Communication, Finish
    from bluefog_pg.optim.knobs import Knobs


@dataclass
class Tally:
    """What an optimizer has exchanged, and how long it has waited."""

    exchanges: int = 0
    waited: float = 0.0  # seconds


@dataclass(frozen=True)
class Site:
    """The buckets of an optimizer, and how they are averaged."""

    optimizer: Optimizer
    buckets: Sequence[Bucket]
    communication: Communication
    every: int
    knobs: Knobs
    member: Member
    prefix: str  # of names that are the optimizer's own in the group
    tells_of_forwards: bool  # a model does
    tally: Tally

    def parameters(self) -> list[Tensor]:
        """What the buckets hold, flat, where they may be changed."""
        for bucket in self.buckets:
            bucket.gather()
        return [bucket.flat for bucket in self.buckets]

    def zeros(self) -> list[Tensor]:
        """Of the buckets' shapes."""
        return [bucket.flat.new_zeros(bucket.flat.shape) for bucket in self.buckets]

    def exchange(self, *of_buckets: Sequence[Tensor]) -> Exchange:
        """Begin to average what has the buckets' shapes: parameters, trackers."""
        self.communication.advance()
        self.tally.exchanges += 1
        ends = [self.communication.begin(flat) for flats in of_buckets for flat in flats]
        return Exchange(ends, self.tally)


class Exchange:
    """Averages under way, each of which ends in the tensor that it began with."""

    def __init__(self, ends: list[Finish], tally: Tally) -> None:
        self._ends, self._tally = ends, tally

    def finish(self) -> None:
        """Once."""
        begun = time.perf_counter()
        while self._ends:
            self._ends.pop(0)()
        self._tally.waited += time.perf_counter() - begun
