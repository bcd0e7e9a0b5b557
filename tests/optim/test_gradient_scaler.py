"""A GradScaler before a distributed optimizer skips what it should, and changes nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support import harness
from tests.support.optimizers import (
    ALGORITHMS,
    OPTIMIZERS,
    assert_at,
    gathered,
    loss_of,
    make_model,
    step,
    vector,
    wrapped,
)


def overflown(rank: int, _world: int, order: str, unscales: bool) -> None:
    """Rank 1 has infinite gradients: it skips its update, and takes part in the average."""
    model, optimizer = wrapped(rank, topology="full", order=order)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    start = gathered(vector(model))
    loss = loss_of(model, rank, 0) * (float("inf") if rank == 1 else 1.0)
    scaler.scale(loss).backward()
    if unscales:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    scaler.step(optimizer)
    scaler.update()
    plain = make_model()
    nn.utils.vector_to_parameters(start[rank].clone(), plain.parameters())
    own = OPTIMIZERS["sgd"](plain.parameters())
    loss_of(plain, rank, 0).backward()
    own.step()
    moves = gathered(vector(plain) - start[rank] if rank != 1 else torch.zeros_like(start[rank]))
    mean = start.mean(0)
    # Weight decay acts on the average in awc.
    if order == "awc":
        wanted = mean + moves[rank] - (0.1 * 0.01 * (mean - start[rank]) if rank != 1 else 0)
    else:
        wanted = (start + moves).mean(0)
    assert_at(model, wanted)
    assert scaler.get_scale() == (2.0 if rank == 1 else 4.0), scaler.get_scale()


@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize("unscales", [False, True])
def test_gradient_scaler(pool: harness.Pool, order: str, unscales: bool) -> None:
    pool.run(overflown, order, unscales)


def scaled_by_much(rank: int, _world: int, order: str) -> None:
    """A scaler changes nothing; rank 1's infinite gradients poison nobody."""
    from bluefog_pg import optim

    ends = []
    for scale in (1.0, 4096.0):
        model, optimizer = wrapped(rank, order=getattr(optim, order)(), topology="ring")
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for number in range(3):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, rank, number)).backward()
            scaler.step(optimizer)
            scaler.update()
        ends.append(vector(model))
        assert_at(model, ends[0], within=1e-9)
        optimizer.zero_grad()
        scaler.scale(loss_of(model, rank, 0) * (float("inf") if rank == 1 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
        step(model, optimizer, rank)
        assert vector(model).isfinite().all(), vector(model)
        optimizer.close()


@pytest.mark.parametrize("order", ALGORITHMS)
def test_scalers_and_algorithms(pool: harness.Pool, order: str) -> None:
    pool.run(scaled_by_much, order)
