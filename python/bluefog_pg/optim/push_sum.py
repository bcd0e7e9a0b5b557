"""This module has push-sum: it averages over digraphs whose ranks know only their receivers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bluefog_pg.optim.algorithm import CountsPasses, Update
from bluefog_pg.optim.averages import begin_average, ending
from bluefog_pg.optim.exact import Tracker
from bluefog_pg.optim.exchange import Exchange
from bluefog_pg.optim.routes import Route, settled

if TYPE_CHECKING:
    from bluefog_pg.optim.communication import Finish
    from bluefog_pg.optim.context import Context


class PushSum(CountsPasses):
    """Do x <- sum of the shares of (x - the update at x / p), and p alike. Parameters are x / p.

    Every rank gives equal shares to itself and those it sends to. So the sums over ranks stay, and
    x / p tends to the mean (SGP: Assran et al., ICML 2019). It needs communication="push_sum".

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns p, a float64; give each optimizer its own.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd, order = torch.optim.SGD([w], lr=0.5), bf.optim.PushSum()
        >>> optimizer = bf.DistributedOptimizer(sgd, [], "push_sum", order=order, topology="exp2")
        >>> for _ in range(30):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((w - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(bf.collectives.allreduce(w.detach()).item(), 3)
        1.5
    """

    communications: tuple[str, ...] = ("push_sum",)
    takes_compression = False
    takes_closures = False  # The update changes sums, at which a closure must not be evaluated.
    takes_weights = False

    def open(self, context: Context) -> None:
        super().open(context)
        self.p = torch.ones(1, dtype=torch.float64, device="cpu")

    def reopen(self, context: Context) -> None:
        p = self.p
        super().reopen(context)
        self.p = p

    def memory(self) -> dict[str, Any]:
        return {"p": [self.p], **super().memory()}

    def step(self, update: Update) -> None:
        with self._in_sums():
            update()
            if self._is_due():
                self._share(self.context.parameters())

    @contextlib.contextmanager
    def _in_sums(self) -> Iterator[None]:
        """Let the parameters hold x instead of x / p during the block, even if it fails."""
        self._scale(self.p.item())
        try:
            yield
        finally:
            self._scale(1 / self.p.item())

    def _scale(self, factor: float) -> None:
        for flat in self.context.parameters():
            flat.mul_(factor)

    def _share(self, tensors: list[Tensor]) -> None:
        """Keep a share of each tensor, and of p, give the others away, and add what comes."""
        route = Route(*self._weights())
        exchange = Exchange(self.context.stats)
        # p comes last: if an average fails, p still belongs to the sums from before.
        for number, tensor in enumerate([*tensors, self.p]):
            begin = functools.partial(self._begin, tensor, route)
            exchange.add(self.context.drawn("NEIGHBOR_ALLREDUCE", number, begin))
        exchange.finish()

    def _begin(self, tensor: Tensor, route: Route) -> Finish:
        return ending(begin_average(tensor, route, self.context.member.group), tensor)

    def _weights(self) -> tuple[float, dict[int, float], dict[int, float]]:
        overrides = self.context.overrides
        route = overrides.route()  # A program may have set only a part of it.
        (_, near_sources), near_destinations = settled(overrides.following, self.context.member)
        sources = near_sources if route.src_weights is None else route.src_weights
        to = near_destinations if route.dst_weights is None else route.dst_weights
        if isinstance(to, Mapping) and overrides.self_weight is not None:
            own, shares = overrides.self_weight, dict(to)
            if abs(own + sum(shares.values()) - 1) > 1e-9:
                raise ValueError(
                    f"{self.context.member.who} push_sum: self_weight and dst_weights are the "
                    "shares of what this rank has: they must sum to 1, not "
                    f"{own + sum(shares.values()):g}"
                )
        elif overrides.self_weight is not None:
            raise ValueError(
                f"{self.context.member.who} push_sum: self_weight goes with dst_weights, a dict of "
                "shares"
            )
        else:
            ranks = list(to)
            own = 1.0 / (len(ranks) + 1)
            shares = dict.fromkeys(ranks, own)
        return own, dict.fromkeys(sources, 1.0), shares


class PushDiging(PushSum):
    """Track gradients by push-sum, which is exact over directed graphs with a constant step.

    x <- sum of the shares of (x - lr y), y <- sum of the shares of y, + the gradient's change
    (Nedic, Olshevsky and Shi, SIAM J. Optim. 2017). The optimizer's update must be linear in the
    gradient, as SGD's is. It needs communication="push_sum".

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns p and two tensors for each bucket; give each optimizer its own.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd, order = torch.optim.SGD([w], lr=0.2), bf.optim.PushDiging()
        >>> optimizer = bf.DistributedOptimizer(sgd, [], "push_sum", order=order, topology="exp2")
        >>> for _ in range(160):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((w - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(w.item(), 3)
        1.5
    """

    communications = ("push_sum", "neighbor_allreduce")
    exchanges_at_each_pass = True
    is_for_sgd = True
    reads_gradients = True

    def open(self, context: Context) -> None:
        super().open(context)
        self._tracker = Tracker(context)

    def flats(self) -> dict[str, list[Tensor]]:
        return self._tracker.flats()

    def step(self, update: Update) -> None:
        self._tracker.track()
        with self._in_sums():
            update()
            self._share([*self.context.parameters(), *self._tracker.estimates])
