"""A distributed optimizer may be dropped, and another one may take over from it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from tests.support import harness, inrank
from tests.support.one_weight import sgd, warned_by
from tests.support.optimizers import (
    STEPS,
    assert_at,
    expected,
    gathered,
    loss_of,
    make_model,
    step,
    vector,
    wrapped,
)


def taken_over(rank: int, world: int, is_dropped: bool) -> None:
    """The second optimizer averages alone, though the first was not closed, or is not yet gone."""
    import bluefog_pg

    model = make_model(rank)
    first: Any = bluefog_pg.DistributedOptimizer(sgd(model), model, topology="ring")
    tally = first.tally
    if is_dropped:
        first = None
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    second: list[Any] = []

    def wrap() -> None:
        second.append(
            bluefog_pg.DistributedOptimizer(sgd(model, **options), model, topology="ring")
        )

    assert warned_by(wrap, "another one has averaged these parameters") == 1
    for number in range(STEPS):
        step(model, second[0], rank, number)
    second[0].close()
    wanted = expected(world, "sgd", "neighbor_allreduce", "awc", "ring")[rank]
    assert_at(model, wanted)
    assert tally.exchanges == 0, tally


@pytest.mark.parametrize("is_dropped", [False, True])
def test_the_last_optimizer_of_parameters_has_them(pool: harness.Pool, is_dropped: bool) -> None:
    pool.run(taken_over, is_dropped)


def dropped(rank: int, _world: int) -> None:
    """An optimizer that nobody holds averages no more."""
    import gc

    model, optimizer = wrapped(rank, topology="full", communication="gradient_allreduce")
    step(model, optimizer, rank)
    del optimizer
    gc.collect()
    model.zero_grad()
    loss_of(model, rank, 1).backward()
    grads = gathered(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert grads.std(0).max() > 1e-3, "still averaged"


def test_an_optimizer_that_is_dropped(pool: harness.Pool) -> None:
    pool.run(dropped)


def set_up_again(rank: int, _world: int) -> None:
    """Buckets that could not be connected, when new or for a topology, are at the next step."""
    import bluefog_pg
    from bluefog_pg.optim import coordinator

    model = make_model(rank)
    model[0].requires_grad_(False)
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model), model, topology="full", order="atc")
    states = [optimizer._coordinator._state.name]
    step(model, optimizer, rank)
    model[0].requires_grad_(True)
    with mock.patch.object(coordinator, "new_communication", side_effect=OSError):
        error = inrank.catch(step, model, optimizer, rank)
    states.append(optimizer._coordinator._state.name)
    step(model, optimizer, rank)
    states.append(optimizer._coordinator._state.name)
    apart = gathered(vector(model)).std(0).max()
    with mock.patch.object(coordinator, "new_communication", side_effect=OSError):
        inrank.catch(optimizer.set_topology, "ring")
    states.append(optimizer._coordinator._state.name)
    step(model, optimizer, rank)
    states.append(optimizer._coordinator._state.name)
    optimizer.set_topology("ring")
    states.append(optimizer._coordinator._state.name)
    optimizer.close()
    states.append(optimizer._coordinator._state.name)
    assert states == ["ACTIVE", "APART", "ACTIVE", "PACKED", "ACTIVE", "ACTIVE", "CLOSED"], states
    assert error is not None, "nothing has failed"
    assert error.kind == "OSError", error
    assert apart < 1e-12, f"{apart:g} apart"


def test_a_set_up_that_failed_is_tried_again(pool: harness.Pool) -> None:
    pool.run(set_up_again)
