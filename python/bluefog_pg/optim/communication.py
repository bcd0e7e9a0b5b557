"""This module has the base of what averages a bucket's parameters with those of other ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.bucket import Bucket

# An exchange that is made again has this name, and operations match by their names. So a rank that
# makes one again alone does not meet another exchange of another rank.
REPEATED = "an average that is made again"
# A Finish waits for the average, and writes it to the tensor.
Finish = Callable[[], None]
# A FinishMove waits for the average, and returns the average minus the tensor, in a new tensor.
FinishMove = Callable[[], "Tensor"]


class Communication:
    """A Communication averages tensors with other ranks; this base class leaves each rank alone.

    All ranks of the group begin averages of tensors of the same shapes in the same order.
    """

    makes_alike = False  # whether all ranks have the same values after an average
    # This says whether it reads the tensor only at the end. Then an average that is not ended has
    # done nothing.
    reads_at_end = False
    activity = ""  # the operation's name in BlueFog's timeline; an empty one is not drawn

    def open(self, buckets: list[Bucket]) -> None:
        """Take these buckets from now on. All ranks make this call."""

    _name: str | None = None  # the name of the exchange's operations

    def advance(self) -> None:
        """Begin the next exchange, whose tensors all go to the same ranks."""
        self._name = None

    def repeat(self) -> None:
        """Begin the last exchange again, with the same ranks."""
        self._name = REPEATED

    def begin(self, flat: Tensor) -> Finish:  # noqa: ARG002
        """Begin to average a tensor of a bucket's shape, which must not change until the end."""
        return _nothing

    def begin_move(self, flat: Tensor) -> FinishMove:
        """Begin the average of a tensor; the end returns how far the average is from it.

        The moves of all ranks sum to 0 up to errors that do not grow with the parameters. For that,
        this base class averages in float64. A class that gets the average's terms one by one can
        add up their differences instead.
        """
        average = flat.to(torch.promote_types(flat.dtype, torch.float64), copy=True)
        finish = self.begin(average)

        def finish_move() -> Tensor:
            finish()
            return average.sub_(flat)

        return finish_move

    def close(self) -> None:
        """Leave the buckets. All ranks make this call."""


def _nothing() -> None:
    """End an average of a Communication that averages with nobody."""
