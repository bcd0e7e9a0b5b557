"""Parameters that are frozen, and what algorithms remember of them, while others are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from bluefog_pg.optim.bucket import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.nn import Parameter

    from bluefog_pg.optim.bucket import Bucket


class Frozen:
    """The frozen parameters, and what algorithms remember of them, as they are when this is made.

    They lie amid others in the buckets and travel with them. What comes back is not theirs.
    """

    def __init__(self, buckets: Sequence[Bucket], memories: Iterable[Sequence[Tensor]]) -> None:
        """Each of the memories has one tensor of each bucket's shape."""
        is_any = any(not param.requires_grad for bucket in buckets for param in bucket.params)
        self._buckets = buckets if is_any else []
        self._params = _frozen(parts_of(self._buckets, [bucket.flat for bucket in self._buckets]))
        self._kept: list[tuple[Tensor, Tensor]] = []  # parts of the buckets, and what they held
        self._memories = [
            (part, part.clone())
            for flats in memories
            if is_any
            for part in _frozen(parts_of(buckets, flats)).values()
        ]
        self._keep()

    def gather(self) -> None:
        """Bring the parameters into the buckets, and keep them as they are now."""
        for bucket in self._buckets:
            bucket.gather()
        self._keep()

    @torch.no_grad()
    def update(self, update: Callable[[], None]) -> None:
        """Run the optimizer's own update, which finds them as they were, and may move them."""
        _restore(self._kept)
        update()
        self.gather()

    @torch.no_grad()
    def restore(self) -> None:
        _restore(self._kept)
        _restore(self._memories)

    def _keep(self) -> None:
        """Keep the parameters' values, wherever they lie: the buckets may not have them yet."""
        self._kept = [(part, param.detach().clone()) for param, part in self._params.items()]


def _frozen(parts: dict[Parameter, Tensor]) -> dict[Parameter, Tensor]:
    return {param: part for param, part in parts.items() if not param.requires_grad}


def _restore(kept: Iterable[tuple[Tensor, Tensor]]) -> None:
    for part, values in kept:
        part.copy_(values)
