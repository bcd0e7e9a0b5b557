"""Local steps, and now and then one of an outer optimizer, by what they have moved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn import Parameter

from bluefog_pg.optim.order import Order, Update

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from bluefog_pg.optim.site import Site


class LocalSteps(Order):
    """`every` steps on each rank by itself; then outer(anchor, gradient anchor - average(w)).

    Parameters go on from the anchor that comes out. SGD of learning rate 1 is plain local SGD; with
    momentum it is SlowMo (Wang, Tantia, Ballas and Rabbat, ICLR 2020), with Nesterov's DiLoCo
    (Douillard et al., 2023). Where the average is of neighbours, anchors are averaged with them,
    too, as in NoLoCo (Kolehmainen et al., 2025).
    """

    def __init__(self, outer: Callable[[list[Parameter]], Optimizer] | None = None) -> None:
        """`outer`: makes the outer optimizer of the anchors; None, of local SGD."""
        self._make = outer or partial(torch.optim.SGD, lr=1.0)

    def open(self, site: Site) -> None:
        super().open(site)
        self._anchors = [Parameter(flat.clone()) for flat in site.parameters()]
        self._outer = self._make(self._anchors)
        self._steps = 0

    def memory(self) -> dict[str, list[Tensor]]:
        return {"anchor": [anchor.data for anchor in self._anchors]}

    def step(self, update: Update) -> None:
        update()
        self._steps += 1
        if self._steps % self.site.every:
            return
        flats, anchors = self.site.parameters(), [anchor.data for anchor in self._anchors]
        self.site.exchange(flats, anchors).finish()
        for flat, anchor in zip(flats, self._anchors, strict=True):
            anchor.grad = anchor.data - flat
        self._outer.step()
        for flat, anchor in zip(flats, self._anchors, strict=True):
            flat.copy_(anchor)
