"""Local steps, and now and then one of an outer optimizer, by what they have moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Parameter

from bluefog_pg.optim.order import Order, Update, copy_alike

if TYPE_CHECKING:
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
        if outer is not None and (not callable(outer) or isinstance(outer, torch.optim.Optimizer)):
            raise TypeError(
                "[bluefog] LocalSteps: outer must be a function that makes an optimizer of the "
                "anchors, such as lambda anchors: torch.optim.SGD(anchors, lr=0.7), not "
                f"{type(outer).__name__}"
            )
        self._make = outer or partial(torch.optim.SGD, lr=1.0)

    def open(self, site: Site) -> None:
        super().open(site)
        self._anchors = [Parameter(flat) for flat in site.zeros()]
        self._outer = self._make(self._anchors)
        self._steps = 0
        self._has_anchors = False
        self._are_alike = False  # the anchors, on all ranks

    def memory(self) -> dict[str, Any]:
        return {
            "anchors": [anchor.data for anchor in self._anchors],
            "outer": self._outer.state_dict(),
            "steps": self._steps if self._has_anchors else None,
        }

    def recall(self, memory: Mapping[str, Any]) -> None:
        for anchor, saved in zip(self._anchors, memory["anchors"], strict=True):
            copy_alike(anchor.data, saved)
        self._outer.load_state_dict(memory["outer"])
        self._steps, self._has_anchors = memory["steps"] or 0, memory["steps"] is not None

    def leave(self) -> None:
        super().leave()
        self._has_anchors = False  # they would pull back to what was before

    def step(self, update: Update) -> None:
        if not self._has_anchors:  # what ranks begin with may have been sent around until now
            self._has_anchors = True
            for anchor, flat in zip(self._anchors, self.site.parameters(), strict=True):
                anchor.data.copy_(flat)
        update()
        self._steps += 1
        if self._steps % self.site.every:
            return
        flats, anchors = self.site.parameters(), [anchor.data for anchor in self._anchors]
        self.site.exchange(flats, *([] if self._are_alike else [anchors])).finish()
        self._are_alike = self.site.communication.makes_alike
        for flat, anchor in zip(flats, self._anchors, strict=True):
            anchor.grad = anchor.data - flat
        self._outer.step()
        for flat, anchor in zip(flats, self._anchors, strict=True):
            flat.copy_(anchor)
