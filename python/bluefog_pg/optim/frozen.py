"""Parameters that are frozen, and what an order remembers of them, while others are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from bluefog_pg.optim.bucket import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from bluefog_pg.optim.bucket import Bucket


class Frozen:
    """The frozen parameters, and what an order remembers of them, as they are when this is made.

    They lie amid others in the buckets and travel with them. What comes back is not theirs.
    """

    def __init__(self, buckets: Sequence[Bucket], memories: Iterable[Sequence[Tensor]]) -> None:
        """Each of the memories has one tensor of each bucket's shape."""
        self._is_any = any(not p.requires_grad for bucket in buckets for p in bucket.params)
        self._buckets = buckets
        if self._is_any:
            self._params = _Kept(buckets, [bucket.flat for bucket in buckets])
            self._memories = [_Kept(buckets, flats) for flats in memories]

    @torch.no_grad()
    def update(self, update: Callable[[], None]) -> None:
        """Run the optimizer's own update, which finds them as they were, and may move them."""
        if self._is_any:
            self._params.restore()
        update()
        if self._is_any:
            for bucket in self._buckets:
                bucket.gather()
            self._params.keep()

    @torch.no_grad()
    def restore(self) -> None:
        if self._is_any:
            for kept in (self._params, *self._memories):
                kept.restore()


class _Kept:
    """Copies of the frozen parameters' parts of these tensors."""

    def __init__(self, buckets: Sequence[Bucket], flats: Sequence[Tensor]) -> None:
        parts = parts_of(buckets, flats)
        self._parts = [part for param, part in parts.items() if not param.requires_grad]
        self.keep()

    def keep(self) -> None:
        self._copies = [part.clone() for part in self._parts]

    def restore(self) -> None:
        for part, copy in zip(self._parts, self._copies, strict=True):
            part.copy_(copy)
