"""This module has the algorithm that averages parameters while their gradients are formed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bluefog_pg._core.loader import load
from bluefog_pg.optim.algorithm import AVERAGES, WINDOWS, CountsPasses, Update

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from bluefog_pg.optim.context import Context

OUT_OF_STEP = (
    "A pass of the model's training has begun this average. Did a rank make such a pass, or a "
    "step, that the others did not make? Make passes for other purposes in torch.no_grad() or "
    "after model.eval(). With every=1 a rank that skips a batch calls zero_grad() and step()"
)


class AdaptWithCombine(CountsPasses):
    """Do w <- average(w) - the update at w, and form the average while gradients are formed.

    This is decentralized gradient descent (D-PSGD: Lian et al., NeurIPS 2017), BlueFog's
    adapt-with-combine, and `order="awc"`. If the program writes to parameters meanwhile, the
    average is dropped, and step() forms another one of what they hold then.

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns the average that is under way; give each optimizer its own.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd = torch.optim.SGD([w], lr=0.5)
        >>> optimizer = bf.DistributedOptimizer(sgd, [], order=bf.optim.AdaptWithCombine())
        >>> for _ in range(30):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((w - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(bf.collectives.allreduce(w.detach()).item(), 3)
        1.5
    """

    communications: tuple[str, ...] = (*AVERAGES, *WINDOWS)

    def open(self, context: Context) -> None:
        super().open(context)
        self._has_heard = False  # whether a forward pass has come since the last step
        self._has_averaged = False  # whether synchronize() has averaged since the last step
        self._is_stepping = False
        self._is_rewritten = False
        self._is_dropped = False  # whether an average was dropped that all ranks make again
        self._params = [param for bucket in context.buckets for param in bucket.params]
        self._watch: Any = None  # finds what the program writes while an average is under way

    def reopen(self, context: Context) -> None:
        before = self._has_heard, self._has_averaged
        super().reopen(context)
        self._has_heard, self._has_averaged = before

    def forward(self) -> None:
        if self._is_stepping:  # The optimizer has called the closure.
            return
        self._has_heard = True
        if self._exchange is not None:
            self._look_for_writes()
        elif self.context.every == 1 and not self._has_averaged:
            self._begin()

    def gradient(self, param: Parameter) -> None:  # noqa: ARG002
        if self._is_stepping or self._exchange is not None:
            return
        if self._backwards + 1 >= self.context.every:
            self._begin()

    def prepare(self) -> None:
        if self._exchange is not None:
            self._look_for_writes()

    def step(self, update: Update) -> None:
        if self._exchange is None:
            self._begin_late()
        elif self._is_rewritten:
            self._begin_again()
        self._has_heard = self._has_averaged = False
        if self.update_differentiates:
            self._update_apart(update)
        else:
            self._finish()
            update()

    def synchronize(self) -> None:
        if self._exchange is None:
            return
        self._look_for_writes()
        if self._is_rewritten:
            self._begin_again()
        self._finish()
        self._has_averaged = True

    def settle(self) -> None:
        if self._exchange is None:
            return
        watch = self._watch
        if self._is_rewritten or (
            watch and (watch.leaves_a_trace() or watch.changed() is not None)
        ):
            self.abandon()
        else:
            self._finish()

    def leave(self) -> None:
        """Drop the average, and have it made again of what the program is about to load.

        One rank may load a state, and then broadcast it. The others write to their parameters by
        that broadcast, and therefore make this average again, too.
        """
        if self._exchange is not None:
            self.abandon()
            self._is_dropped = True

    def skip(self) -> None:
        self._has_heard = self._has_averaged = False

    @torch.no_grad()
    def abandon(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._is_rewritten = self._is_dropped = False
        if exchange is None or self.context.communication.reads_at_end:
            return
        flats = [flat for each in self._exchanged() for flat in each]
        kept = [flat.clone() for flat in flats]
        try:
            exchange.finish()
        finally:
            for flat, values in zip(flats, kept, strict=True):
                flat.copy_(values)

    def _finish(self) -> None:
        if self._exchange is not None:
            self._backwards = 0
        try:
            super().synchronize()
        except load().Mismatch as error:
            error.args = (f"{error}. {OUT_OF_STEP}",)
            raise

    def _begin_late(self) -> None:
        if self._has_averaged:
            return
        if not self._has_heard and not self.update_differentiates:
            self.context.warn_of_no_forward()
        if self._is_dropped or max(1, self._backwards) >= self.context.every:
            self._begin(is_watched=False)

    @torch.no_grad()
    def _begin(self, is_watched: bool = True) -> None:
        is_another, self._is_dropped = not self._is_dropped, False
        self._is_rewritten = self._has_averaged = False
        self.context.parameters()  # moves parameters into the buckets
        self._exchange = self.context.exchange(*self._exchanged(), is_another=is_another)
        self._watch = load().WriteWatch(self._params) if is_watched else None

    def _begin_again(self) -> None:
        """Drop the average, and average what the parameters hold now with the same ranks."""
        self.abandon()
        self._is_dropped = True
        self._begin(is_watched=False)

    def _look_for_writes(self) -> None:
        """Find out whether the program has written to parameters since the average began.

        Raises:
            RuntimeError: it has written by way of `.data`, which other ranks may not have done.
        """
        if self._is_rewritten or self._watch is None:
            return
        self._is_rewritten = self._watch.leaves_a_trace()
        if self._is_rewritten:
            return
        changed = self._watch.changed()
        if changed is not None:
            param = self._params[changed]
            raise RuntimeError(
                f"{self.context.member.who} DistributedOptimizer: between the forward pass and "
                f"step() the program wrote to {self.context.name_of(param)} through .data, "
                'while its average was under way. Use order="atc", which averages in '
                "step(); or write to the parameter itself, under torch.no_grad()"
            )

    def _update_apart(self, update: Update) -> None:
        """Let the update differentiate at this rank's own parameters, and move the averages."""
        flats = self.context.parameters()
        own = [flat.clone() for flat in flats]
        self._finish()
        differences = [flat - mine for flat, mine in zip(flats, own, strict=True)]
        for flat, mine in zip(flats, own, strict=True):
            flat.copy_(mine)
        self._is_stepping = True
        try:
            update()
        finally:
            self._is_stepping = False
            for flat, difference in zip(self.context.parameters(), differences, strict=True):
                flat.add_(difference)

    def _exchanged(self) -> list[list[Tensor]]:
        """Return the tensors to average: lists with one tensor of each bucket's shape."""
        return [[bucket.flat for bucket in self.context.buckets]]
