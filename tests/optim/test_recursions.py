"""Distributed optimizers, step by step, against the recursions that their names stand for."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from torch.nn.utils import parameters_to_vector

from tests.support import harness
from tests.support.optimizers import OPTIMIZERS, STEPS, expected, loss_of, make_model, shift

pytestmark = harness.only_bluefog


def trained(rank: int, world: int, kind: str, options: dict[str, Any]) -> None:
    import bluefog_pg

    model = make_model()
    shift(model, rank)
    plain = OPTIMIZERS[kind](model.parameters())
    optimizer = bluefog_pg.DistributedOptimizer(plain, model, **options)
    assert optimizer is plain, optimizer
    assert isinstance(optimizer, type(OPTIMIZERS[kind]([nn.Parameter()]))), type(optimizer)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    want = expected(
        world,
        kind,
        options.get("communication", "neighbor_allreduce"),
        options.get("order", "awc"),
        options.get("topology"),
    )[rank]
    got = parameters_to_vector(model.parameters()).detach()
    off = (got - want).abs().max().item()
    assert off < 1e-12, f"off by {off}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize("topology", [None, "ring", "one-peer-exp2"])
def test_averages_of_neighbors(pool: harness.Pool, kind: str, order: str, topology: Any) -> None:
    options = {"order": order, "topology": topology, "bucket_bytes": 200}
    pool.run(trained, kind, options)


@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize("communication", ["allreduce", "gradient_allreduce", "empty"])
def test_averages_of_all(pool: harness.Pool, communication: str, order: str) -> None:
    options = {"order": order, "communication": communication}
    pool.run(trained, "sgd", options)
