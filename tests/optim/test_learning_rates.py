"""A scheduler may change learning rates."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from tests.support import harness
from tests.support.optimizers import (
    ALGORITHMS,
    assert_at,
    gathered,
    loss_of,
    make_model,
    step,
    vector,
    wrapped,
)


def scheduled(rank: int, _world: int, before: bool) -> None:
    """A scheduler, made before or after, changes what the optimizer uses, and does not warn."""
    import bluefog_pg

    model = make_model(rank)
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.1) if before else None
    optimizer = bluefog_pg.DistributedOptimizer(plain, model, topology="full")
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(model, optimizer, rank)
        scheduler.step()
    start = gathered(vector(model))
    optimizer.zero_grad()
    loss_of(model, rank, 1).backward()
    grads = parameters_to_vector(p.grad for p in model.parameters())
    optimizer.step()
    assert_at(model, start.mean(0) - 0.1 * grads)
    assert optimizer.param_groups[0]["lr"] == 0.1, optimizer
    assert grads.norm() > 0.1, f"gradients {grads} show no rate"


@pytest.mark.parametrize("before", [True, False])
def test_schedulers(pool: harness.Pool, before: bool) -> None:
    pool.run(scheduled, before)


def warming(rank: int, _world: int, order: str) -> None:
    """Train with the learning rates 0, 0.05 and 0.1."""
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, order=getattr(optim, order)(), topology="ring")
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: epoch / 2)
    before = vector(model)
    for number in range(3):
        step(model, optimizer, rank, number)
        scheduler.step()
    moved = (vector(model) - before).abs()
    assert moved.isfinite().all() and moved.max() > 0, f"moved by {moved.max()}"


@pytest.mark.parametrize("order", ALGORITHMS)
def test_rates_that_begin_at_zero(pool: harness.Pool, order: str) -> None:
    pool.run(warming, order)
