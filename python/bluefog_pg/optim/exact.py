"""Algorithms that end where all ranks' losses together are least, with a constant step.

Where ranks have different data, plain averages end near it: as far away as the step is large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bluefog_pg.optim.gradients import flat_gradient, set_gradient
from bluefog_pg.optim.order import AVERAGES, AdaptWithCombine, Order, Update

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.site import Site


class ExactDiffusion(Order):
    """psi <- w - update(w); w <- (I + average)/2 of (psi + w - the psi before).

    Corrects each average by what the last one changed (Yuan, Ying, Zhao and Sayed, 2019); with
    stochastic gradients known as D2 (Tang et al., ICML 2018). For symmetric weights that sum to 1.
    """

    exchanges_at_each_pass = True
    needs = "symmetric"

    def open(self, site: Site) -> None:
        super().open(site)
        self._corrections = site.zeros()

    def memory(self) -> dict[str, list[Tensor]]:
        return {"correction": self._corrections}

    def step(self, update: Update) -> None:
        update()
        flats = self.site.parameters()
        psis = [flat.clone() for flat in flats]
        for flat, correction in zip(flats, self._corrections, strict=True):
            flat.add_(correction)
            correction.copy_(flat)
        self.site.exchange(flats).finish()
        for flat, correction, psi in zip(flats, self._corrections, psis, strict=True):
            flat.add_(correction).mul_(0.5)
            torch.sub(flat, psi, out=correction)


class Tracker:
    """Of each rank an estimate of the mean gradient: y <- average(y) + the gradient's change."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.flats: list[Tensor] = site.zeros()
        self._gradients = site.zeros()

    def memory(self) -> dict[str, list[Tensor]]:
        """As of an order."""
        return {"tracker": self.flats, "gradient": self._gradients}

    def track(self) -> None:
        """Add the change to `flats`, which others have averaged, and have them for gradients."""
        for number, bucket in enumerate(self._site.buckets):
            gradient = flat_gradient(bucket)
            self.flats[number].add_(gradient).sub_(self._gradients[number])
            self._gradients[number].copy_(gradient)
            set_gradient(bucket, self.flats[number])


class GradientTracking(AdaptWithCombine):
    """w <- average(w) - lr y, where y tracks the mean gradient: y <- average(y) + its change.

    DIGing (Nedic, Olshevsky and Shi, SIAM J. Optim. 2017; Qu and Li, 2018). Exchanges twice the
    bytes of the parameters. For optimizers whose update is linear in the gradient, as SGD's is.
    """

    communications = AVERAGES
    exchanges_at_each_pass = True
    is_for_sgd = True
    reads_gradients = True
    needs = "doubly stochastic"

    def open(self, site: Site) -> None:
        super().open(site)
        self._tracker = Tracker(site)

    def step(self, update: Update) -> None:
        def tracked() -> None:
            self._tracker.track()
            update()

        super().step(tracked)

    def memory(self) -> dict[str, list[Tensor]]:
        return self._tracker.memory()

    def _exchanged(self) -> list[list[Tensor]]:
        return [*super()._exchanged(), self._tracker.flats]
