"""How a bucket's parameters are averaged with those of other ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bluefog_pg.optim.bucket import Bucket

# Waits for the average, and puts it into the bucket.
Finish = Callable[[], None]


class Communication(Protocol):
    """All ranks of the group begin the same buckets in the same order."""

    def open(self, buckets: list[Bucket]) -> None:
        """These are the buckets from now on. All ranks do."""

    def advance(self) -> None:
        """The next step of the communication begins: its buckets go to the same ranks."""

    def begin(self, bucket: Bucket) -> Finish:
        """Start with what the bucket holds now. Until the end that must stay as it is."""

    def close(self) -> None:
        """There are no buckets any more. All ranks do."""


def nothing() -> None:
    """An end where nothing was begun."""
