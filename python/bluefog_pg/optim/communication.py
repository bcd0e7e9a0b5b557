"""How a bucket's parameters are averaged with those of other ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.bucket import Bucket

# Waits for the average, and puts it where the tensor was.
Finish = Callable[[], None]


class Communication:
    """All ranks of the group begin alike tensors in the same order; here, each by itself."""

    makes_alike = False  # what it has averaged, on all ranks
    activity = ""  # the operation's name in BlueFog's timeline; where it is empty, none is drawn

    def open(self, buckets: list[Bucket]) -> None:
        """These are the buckets from now on. All ranks do."""

    def advance(self) -> None:
        """The next exchange begins: all its tensors go to the same ranks."""

    def begin(self, flat: Tensor) -> Finish:  # noqa: ARG002
        """Start with what a bucket holds now, or what has its shape. Until the end that stays."""
        return _nothing

    def close(self) -> None:
        """There are no buckets any more. All ranks do."""


def _nothing() -> None:
    """An end where nothing was begun."""
