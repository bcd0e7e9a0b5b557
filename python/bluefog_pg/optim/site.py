"""What an order works on."""

from __future__ import annotations

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
        return Exchange([self.communication.begin(flat) for flats in of_buckets for flat in flats])


class Exchange:
    """Averages under way, each of which ends in the tensor that it began with."""

    def __init__(self, ends: list[Finish]) -> None:
        self._ends = ends

    def finish(self) -> None:
        """Once."""
        while self._ends:
            self._ends.pop(0)()
