"""This module has the context that an algorithm works in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bluefog_pg._core.timeline import drawn_until
from bluefog_pg._core.warning import warn
from bluefog_pg.optim.exchange import Exchange

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.optim import Optimizer

    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.bucket import Bucket
    from bluefog_pg.optim.communication import Communication, Finish
    from bluefog_pg.optim.exchange import ExchangeStats
    from bluefog_pg.optim.step_overrides import StepOverrides


def wider(flat: Tensor, at_least: torch.dtype | None) -> torch.dtype:
    """Return the dtype of a tensor, promoted to be at least as exact as the other dtype."""
    return flat.dtype if at_least is None else torch.promote_types(flat.dtype, at_least)


@dataclass
class Context:
    """A Context has an optimizer's buckets and the communication that averages them.

    An algorithm reaches the optimizer, the group and the statistics by it, too.
    """

    optimizer: Optimizer
    buckets: Sequence[Bucket]
    communication: Communication
    every: int
    overrides: StepOverrides
    member: GroupState
    prefix: str  # the prefix of names that are the optimizer's own in the group
    stats: ExchangeStats
    # This function makes the optimizer's own step for these parameters alone.
    update: Callable[[Sequence[Parameter]], None]
    # This function returns all ranks that this rank receives from, and sends to, in any step.
    near: Callable[[], tuple[list[int], list[int]]]
    name_of: Callable[[Parameter], str]
    is_to_tell_of_forwards: bool  # whether a model tells of its forward passes

    @property
    def knobs(self) -> StepOverrides:
        """Return `overrides`, by its earlier name, which programs' own algorithms may use."""
        return self.overrides

    @property
    def tally(self) -> ExchangeStats:
        """Return `stats`, by its earlier name, which programs' own algorithms may use."""
        return self.stats

    def parameters(self) -> list[Tensor]:
        """Return the buckets' flat tensors, which may be changed; parameters move in before."""
        for bucket in self.buckets:
            bucket.gather()
        return [bucket.flat for bucket in self.buckets]

    def zeros(self, at_least: torch.dtype | None = None) -> list[Tensor]:
        """Return zeros of the buckets' shapes and dtypes, or of dtypes at least as exact as given.

        Sums that go on for a whole training need a wide type, or their rounding errors grow without
        end.
        """
        flats = [bucket.flat for bucket in self.buckets]
        return [torch.zeros_like(flat, dtype=wider(flat, at_least)) for flat in flats]

    def exchange(self, *of_buckets: Sequence[Tensor], is_another: bool = True) -> Exchange:
        """Begin to average tensors of the buckets' shapes, such as parameters or trackers.

        Unless it `is_another`, the last exchange is made again, with the same ranks.
        """
        if is_another:
            self.communication.advance()
        else:
            self.communication.repeat()
        exchange = Exchange(self.stats)
        for flats in of_buckets:
            for number, flat in enumerate(flats):
                exchange.add(self.begin(flat, number))
        return exchange

    def moves(self, flats: Sequence[Tensor]) -> list[Tensor]:
        """Average tensors of the buckets' shapes; return each average minus its tensor."""
        self.communication.advance()
        moves: list[Tensor] = []
        exchange = Exchange(self.stats)
        for number, flat in enumerate(flats):
            exchange.add(self._begin_move(flat, number, moves))
        exchange.finish()
        return moves

    def _begin_move(self, flat: Tensor, number: int, moves: list[Tensor]) -> Finish:
        def begin() -> Finish:
            finish = self.communication.begin_move(flat)
            return lambda: moves.append(finish())

        return self.drawn(self.communication.activity, number, begin)

    def begin(self, flat: Tensor, number: int) -> Finish:
        """Begin to average a tensor of that bucket's shape, and draw it in the timeline."""
        begin = functools.partial(self.communication.begin, flat)
        return self.drawn(self.communication.activity, number, begin)

    def drawn(self, activity: str, number: int, begin: Callable[[], Finish]) -> Finish:
        """Draw what `begin` begins as that activity of the bucket, unless the activity is empty."""
        return drawn_until(f"{self.prefix}.{number}", activity, begin) if activity else begin()

    def warn_of_no_forward(self) -> None:
        """Warn once that no forward pass came before step(), if a model could have told of one."""
        if self.is_to_tell_of_forwards:
            self.is_to_tell_of_forwards = False
            warn(
                f"{self.member.who} DistributedOptimizer: the model made no forward pass in "
                "training mode before this step(), so step() makes the whole average itself. Call "
                "the model itself, model(x), in training mode; or wrap the module that is called",
            )
