"""How a bucket's parameters are averaged with those of other ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.bucket import Bucket

# The name of an exchange that is made again. A rank that does so alone must not meet another
# exchange of another rank, and operations with names meet by these.
REPEATED = "an average that is made again"
# Waits for the average, and puts it where the tensor was.
Finish = Callable[[], None]
# Waits for the average, and returns how far it is from the tensor, in a new one.
FinishMove = Callable[[], "Tensor"]


class Communication:
    """All ranks of the group begin alike tensors in the same order; here, each by itself."""

    makes_alike = False  # what it has averaged, on all ranks
    reads_at_end = False  # the tensor, so that an average that is not ended has done nothing
    activity = ""  # the operation's name in BlueFog's timeline; where it is empty, none is drawn

    def open(self, buckets: list[Bucket]) -> None:
        """These are the buckets from now on. All ranks do."""

    _name: str | None = None  # of the exchange's operations

    def advance(self) -> None:
        """The next exchange begins: all its tensors go to the same ranks."""
        self._name = None

    def repeat(self) -> None:
        """The last exchange is made again, with the same ranks."""
        self._name = REPEATED

    def begin(self, flat: Tensor) -> Finish:  # noqa: ARG002
        """Start with what a bucket holds now, or what has its shape. Until the end that stays."""
        return _nothing

    def begin_move(self, flat: Tensor) -> FinishMove:
        """Start with what the tensor holds; the end says how far the average is from it.

        The moves of all ranks sum to 0 up to errors that do not grow with the parameters. Here the
        average is of float64; where its terms come one by one, their differences are enough.
        """
        average = flat.to(torch.promote_types(flat.dtype, torch.float64), copy=True)
        finish = self.begin(average)

        def finish_move() -> Tensor:
            finish()
            return average.sub_(flat)

        return finish_move

    def close(self) -> None:
        """There are no buckets any more. All ranks do."""


def _nothing() -> None:
    """An end where nothing was begun."""
