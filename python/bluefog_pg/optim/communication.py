"""How a bucket's parameters are averaged with those of other ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.bucket import Bucket

# Waits for the average, and puts it where the tensor was.
Finish = Callable[[], None]


class Communication(Protocol):
    """All ranks of the group begin alike tensors in the same order."""

    def open(self, buckets: list[Bucket]) -> None:
        """These are the buckets from now on. All ranks do."""

    def advance(self) -> None:
        """The next exchange begins: all its tensors go to the same ranks."""

    def begin(self, flat: Tensor) -> Finish:
        """Start with what a bucket holds now, or what has its shape. Until the end that stays."""

    def close(self) -> None:
        """There are no buckets any more. All ranks do."""


def nothing() -> None:
    """An end where nothing was begun."""
