"""When parameters are averaged: while gradients are formed, or after the own update."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from bluefog_pg.optim.site import Exchange, Site

Update = Callable[[], None]


class Order:
    """What an optimizer does around its own update; this one, nothing: each rank by itself."""

    site: Site
    watches_backward = False  # whether `gradient` and `backward` are to be called
    takes_windows = False  # whether parameters are all that it averages

    def open(self, site: Site) -> None:
        """Work on these buckets from now on, as if nothing had been before."""
        self.site = site

    def forward(self) -> None:
        """The model begins a forward pass of its training."""

    def gradient(self, param: Parameter) -> None:
        """A backward pass has added to the parameter's gradient all that it will."""

    def backward(self) -> None:
        """A backward pass ends."""

    def synchronize(self) -> None:
        """Wait for what is under way."""

    def memory(self) -> dict[str, list[Tensor]]:
        """What it has to know when training is resumed: by name, of the buckets' shapes."""
        return {}

    def close(self) -> None:
        """The buckets are these no more. All ranks do."""
        self.synchronize()

    def step(self, update: Update) -> None:
        """`update` is the optimizer's own step."""
        update()


class AdaptWithCombine(Order):
    """w <- average(w) - the update at w. The average is formed while gradients are.

    Decentralized gradient descent (D-PSGD: Lian et al., NeurIPS 2017).
    """

    takes_windows = True

    def open(self, site: Site) -> None:
        super().open(site)
        self._forwards = 0
        self._exchange: Exchange | None = None

    def forward(self) -> None:
        if self._exchange is not None:
            _warn_of_forward()
            return  # gradients may still be formed at these parameters
        self._forwards += 1
        if self._forwards >= self.site.every:
            self._begin()

    def synchronize(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.finish()

    def step(self, update: Update) -> None:
        if not self.site.tells_of_forwards:
            self.forward()
        self.synchronize()
        update()

    def _begin(self) -> None:
        self._forwards = 0
        self._exchange = self.site.exchange(*self._exchanged())

    def _exchanged(self) -> list[list[Tensor]]:
        return [self.site.parameters()]


class AdaptThenCombine(Order):
    """w <- average(w - the update at w): diffusion (Chen and Sayed, 2012)."""

    takes_windows = True

    def open(self, site: Site) -> None:
        super().open(site)
        self.watches_backward = site.every > 1
        self._backwards = 0

    def backward(self) -> None:
        self._backwards += 1

    def step(self, update: Update) -> None:
        update()
        if self.site.every == 1 or self._backwards >= self.site.every:
            self._backwards = 0
            self.site.exchange(self.site.parameters()).finish()


def _warn_of_forward() -> None:
    warnings.warn(
        "[bluefog] Unexpected behavior: a forward pass more without a step(). To accumulate "
        "gradients over k passes use every=k (num_steps_per_communication=k)",
        stacklevel=2,
    )
