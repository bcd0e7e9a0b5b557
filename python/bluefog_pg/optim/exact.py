"""This module has algorithms that reach the minimum of all ranks' losses with a constant step.

If ranks have different data, plain averages end only near it, at a distance that grows with the
step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bluefog_pg.optim.adapt_with_combine import AdaptWithCombine
from bluefog_pg.optim.algorithm import AVERAGES, Algorithm, Update
from bluefog_pg.optim.context import wider
from bluefog_pg.optim.gradients import flat_gradient, set_gradient

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.context import Context


class ExactDiffusion(Algorithm):
    """Do psi <- w - update(w), and then w <- (I + average)/2 of (psi + w - the psi before).

    It corrects each average by what the last one changed (Yuan, Ying, Zhao and Sayed, 2019). With
    stochastic gradients it is known as D2 (Tang et al., ICML 2018). Weights must be symmetric and
    sum to 1.

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns one tensor for each bucket; give each optimizer its own.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd, order = torch.optim.SGD([w], lr=0.5), bf.optim.ExactDiffusion()
        >>> optimizer = bf.DistributedOptimizer(sgd, [], order=order, topology="ring")
        >>> for _ in range(80):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((w - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(w.item(), 3)
        1.5
    """

    exchanges_at_each_pass = True
    needs = "symmetric"

    def open(self, context: Context) -> None:
        super().open(context)
        self._corrections = context.zeros(torch.float64)

    def flats(self) -> dict[str, list[Tensor]]:
        return {"correction": self._corrections}

    def step(self, update: Update) -> None:
        update()
        flats = self.context.parameters()
        corrected = [
            (flat + correction).to(wider(flat, torch.float32))
            for flat, correction in zip(flats, self._corrections, strict=True)
        ]
        # Rounding errors of a move are as small as the move. If the correction was computed as w -
        # psi, they would be as large as those of the parameters, and would add up.
        moves = self.context.moves(corrected)
        for flat, correction, move in zip(flats, self._corrections, moves, strict=True):
            flat.add_(correction.add_(move, alpha=0.5))


class Tracker:
    """A Tracker has this rank's estimate of the mean gradient: y <- average(y) + its change.

    It owns two tensors for each bucket: the estimate, and the last gradient.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.estimates: list[Tensor] = context.zeros(torch.float32)
        self._gradients = context.zeros()

    def flats(self) -> dict[str, list[Tensor]]:
        """Return the tracker's tensors as `Algorithm.flats` does."""
        return {"tracker": self.estimates, "gradient": self._gradients}

    def track(self) -> None:
        """Add the gradients' changes to the averaged estimates, which replace the gradients."""
        for number, bucket in enumerate(self._context.buckets):
            gradient = flat_gradient(bucket)
            self.estimates[number].add_(gradient).sub_(self._gradients[number])
            self._gradients[number].copy_(gradient)
            set_gradient(bucket, self.estimates[number])


class GradientTracking(AdaptWithCombine):
    """Do w <- average(w) - lr y, where y tracks the mean gradient: y <- average(y) + its change.

    This is DIGing (Nedic, Olshevsky and Shi, SIAM J. Optim. 2017; Qu and Li, 2018). It exchanges
    twice the bytes of the parameters. The optimizer's update must be linear in the gradient, as
    SGD's is.

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns two tensors for each bucket; give each optimizer its own.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd, order = torch.optim.SGD([w], lr=0.2), bf.optim.GradientTracking()
        >>> optimizer = bf.DistributedOptimizer(sgd, [], order=order, topology="ring")
        >>> for _ in range(200):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((w - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(w.item(), 3)
        1.5
    """

    communications = AVERAGES
    exchanges_at_each_pass = True
    is_for_sgd = True
    reads_gradients = True
    takes_closures = False
    needs = "doubly stochastic"

    def open(self, context: Context) -> None:
        super().open(context)
        self._tracker = Tracker(context)

    def step(self, update: Update) -> None:
        def tracked() -> None:
            self._tracker.track()
            update()

        super().step(tracked)

    def flats(self) -> dict[str, list[Tensor]]:
        return self._tracker.flats()

    def _exchanged(self) -> list[list[Tensor]]:
        return [*super()._exchanged(), self._tracker.estimates]
