"""A user may write an order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tests.support import harness, inrank
from tests.support.optimizers import STEPS, Reference, assert_at, matrices, step, wrapped

if TYPE_CHECKING:
    from bluefog_pg import optim


@functools.cache
def twice() -> type[optim.Order]:
    from bluefog_pg import optim

    class AdaptThenCombineTwice(optim.Order):
        """This order does w <- average(average(w - the update at w)), and counts averages."""

        communications = ("neighbor_allreduce",)
        exchanges_at_each_pass = True

        def open(self, site: Any) -> None:
            self.site = site  # by earlier names, as programs have them
            assert site.knobs is site.overrides
            assert site.tally is site.stats
            self._averages = torch.zeros(1)

        def memory(self) -> dict[str, list[Tensor]]:
            return {"averages": [self._averages]}

        def step(self, update: Callable[[], None]) -> None:
            update()
            for _ in range(2):
                self.site.exchange(self.site.parameters()).finish()
                self._averages.add_(1)

    return AdaptThenCombineTwice


def by_own_order(rank: int, world: int) -> None:
    """Each average is a step of the schedule, and what it remembers goes with the state."""
    options = {"topology": "one-peer-exp2", "bucket_bytes": 200}
    model, optimizer = wrapped(rank, order=twice()(), **options)
    reference, averages = Reference(world, "sgd"), matrices("one-peer-exp2", world)
    for number in range(STEPS):
        step(model, optimizer, rank, number)
        reference.differentiate(number)
        reference.update()
        reference.set(next(averages) @ next(averages) @ reference.vectors())
    assert_at(model, reference.vectors()[rank])
    exchanges = optimizer.tally.exchanges
    other, resumed = wrapped(rank, order=twice()(), **options)
    resumed.load_state_dict(optimizer.state_dict())
    step(other, resumed, rank)
    (averages_of_both,) = resumed.state_dict()["bluefog"]["memory"]["averages"]
    errors = [
        inrank.catch(setattr, optimizer, "communication", "allreduce"),
        inrank.catch(wrapped, rank, order=twice()(), every=2),
    ]
    assert exchanges == 2 * STEPS, f"{exchanges} exchanges"
    assert averages_of_both.item() == 2 * STEPS + 2, f"{averages_of_both} averages"
    kinds = [error.kind if error else "nothing" for error in errors]
    assert kinds == ["ValueError"] * 2, errors


def test_an_order_of_ones_own(pool: harness.Pool) -> None:
    pool.run(by_own_order)
