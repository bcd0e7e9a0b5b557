"""This module keeps frozen parameters as they are while others are averaged."""

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
    """A Frozen keeps the frozen parameters, and what the algorithm remembers of them.

    They lie amid others in the buckets and travel with them, but must not take the averages. It
    copies what they hold when it is made, and `restore` puts that back.
    """

    def __init__(self, buckets: Sequence[Bucket], memories: Iterable[Sequence[Tensor]]) -> None:
        """Copy the frozen parts; each of the memories has one tensor of each bucket's shape."""
        is_any = any(not param.requires_grad for bucket in buckets for param in bucket.params)
        self._buckets = buckets if is_any else []
        self._params = _frozen(parts_of(self._buckets, [bucket.flat for bucket in self._buckets]))
        self._kept: list[tuple[Tensor, Tensor]] = []  # parts of buckets, with values to restore
        self._memories = [
            (part, part.clone())
            for flats in memories
            if is_any
            for part in _frozen(parts_of(buckets, flats)).values()
        ]
        self._keep()

    def gather(self) -> None:
        """Move the parameters into the buckets, and keep their present values."""
        for bucket in self._buckets:
            bucket.gather()
        self._keep()

    @torch.no_grad()
    def update(self, update: Callable[[], None]) -> None:
        """Run the optimizer's own update at the kept values, and keep what it makes of them."""
        _restore(self._kept)
        update()
        self.gather()

    @torch.no_grad()
    def restore(self) -> None:
        _restore(self._kept)
        _restore(self._memories)

    def _keep(self) -> None:
        """Keep the values of the parameters themselves, which may not lie in the buckets yet."""
        self._kept = [(part, param.detach().clone()) for param, part in self._params.items()]


def _frozen(parts: dict[Parameter, Tensor]) -> dict[Parameter, Tensor]:
    return {param: part for param, part in parts.items() if not param.requires_grad}


def _restore(kept: Iterable[tuple[Tensor, Tensor]]) -> None:
    for part, values in kept:
        part.copy_(values)
