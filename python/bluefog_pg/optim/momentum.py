"""This module has momentum for ranks with different data.

Plain momentum would carry their parameters further apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluefog_pg._core.warning import warn
from bluefog_pg.optim.algorithm import Algorithm, CountsPasses, Update
from bluefog_pg.optim.gradients import flat_gradient, set_gradient

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.context import Context


class QuasiGlobalMomentum(CountsPasses):
    """Update by g + momentum m, then average; m follows what the averages moved by.

    m <- momentum m + (1 - momentum) (w before - w after) / lr: it holds what neighbors did, too
    (Lin, Karimireddy, Stich and Jaggi, ICML 2021). The optimizer is SGD without momentum of its
    own.

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns two tensors for each bucket; give each optimizer its own.

    Args:
        momentum: the part of m that stays at each step.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd, order = torch.optim.SGD([w], lr=0.3), bf.optim.QuasiGlobalMomentum(momentum=0.5)
        >>> optimizer = bf.DistributedOptimizer(sgd, [], order=order, topology="full")
        >>> for _ in range(80):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((w - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(w.item(), 3)
        1.5
    """

    is_for_sgd = True
    reads_gradients = True
    takes_closures = False

    def __init__(self, momentum: float = 0.9) -> None:
        self._momentum = momentum

    def open(self, context: Context) -> None:
        super().open(context)
        if any(group.get("momentum") for group in context.optimizer.param_groups):
            warn(
                f"{context.member.who} QuasiGlobalMomentum: the optimizer has its own momentum, "
                "and both together may diverge; use SGD without momentum",
            )
        self._moves = context.zeros()

    def flats(self) -> dict[str, list[Tensor]]:
        return {"momentum": self._moves}

    def step(self, update: Update) -> None:
        beta, flats = self._momentum, self.context.parameters()
        before = [flat.clone() for flat in flats]
        for bucket, move in zip(self.context.buckets, self._moves, strict=True):
            set_gradient(bucket, flat_gradient(bucket).add_(move, alpha=beta))
        update()
        if self._is_due():
            self.context.exchange(flats).finish()
        rates = _rates(self.context)
        for flat, move, was, rate in zip(flats, self._moves, before, rates, strict=True):
            moved = _over(was.sub_(flat), rate)
            move.mul_(beta).add_(moved, alpha=1 - beta)


class DecentLaM(Algorithm):
    """Make a step of SGD with momentum, by the gradient (w - average(w - lr g)) / lr.

    So momentum does not magnify the bias that plain averages have (Yuan et al., ICCV 2021). Weights
    must be symmetric: with others it may diverge.

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns nothing between steps.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd, order = torch.optim.SGD([w], lr=0.3, momentum=0.5), bf.optim.DecentLaM()
        >>> optimizer = bf.DistributedOptimizer(sgd, [], order=order, topology="full")
        >>> for _ in range(80):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((w - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(w.item(), 3)
        1.5
    """

    exchanges_at_each_pass = True
    is_for_sgd = True
    reads_gradients = True
    takes_closures = False
    needs = "symmetric"

    def step(self, update: Update) -> None:
        flats, rates = self.context.parameters(), _rates(self.context)
        ends = [
            flat - rate * flat_gradient(bucket)
            for flat, rate, bucket in zip(flats, rates, self.context.buckets, strict=True)
        ]
        self.context.exchange(ends).finish()
        for bucket, end, rate in zip(self.context.buckets, ends, rates, strict=True):
            set_gradient(bucket, _over(bucket.flat - end, rate))
        update()


def _rates(context: Context) -> list[Tensor]:
    """Return the learning rates of each bucket's elements."""
    groups = context.optimizer.param_groups
    rate_of = {param: group["lr"] for group in groups for param in group["params"]}
    rates = context.zeros()
    for bucket, flat in zip(context.buckets, rates, strict=True):
        for param, view in zip(bucket.params, bucket.views(flat), strict=True):
            view.fill_(rate_of[param])
    return rates


def _over(move: Tensor, rate: Tensor) -> Tensor:
    """Divide a move in place by the rates, which gives its gradient; it is 0 where a rate is 0."""
    return move.div_(rate).masked_fill_(rate == 0, 0.0)
