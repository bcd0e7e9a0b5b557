"""This module tells which parts of a model a backward pass has finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.nn import Parameter


class BucketReadiness:
    """A BucketReadiness calls `act` with each part's number once a pass has formed its gradients.

    It takes the parts in order, so that all ranks act in one order. A part that lacks gradients has
    its turn at the end of the pass.
    """

    def __init__(self, parts: Sequence[Sequence[Parameter]], act: Callable[[int], None]) -> None:
        self._sizes, self._act = [len(part) for part in parts], act
        self._part_of = {param: number for number, part in enumerate(parts) for param in part}
        self.restart()

    def restart(self) -> None:
        """Begin a pass, and forget the last one, which may have failed before its end."""
        self._next, self._lacking = 0, list(self._sizes)
        self.is_under_way = False

    @property
    def has_acted(self) -> bool:
        """Return whether a pass that has not ended has finished a part."""
        return self._next > 0

    def gradient(self, param: Parameter) -> None:
        self.is_under_way = True
        self._lacking[self._part_of[param]] -= 1
        while self._next < len(self._sizes) and self._lacking[self._next] == 0:
            self._act_next()

    def end(self) -> None:
        while self._next < len(self._sizes):
            self._act_next()
        self.restart()

    def _act_next(self) -> None:
        self._next += 1
        self._act(self._next - 1)
