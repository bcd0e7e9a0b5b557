"""Algorithms of distributed optimizers on one rank, and around one that many meet."""

from __future__ import annotations

import time

import pytest
import torch

from tests.support import harness
from tests.support.one_weight import ONE, alike_weights, sgd

pytestmark = harness.only_bluefog


def alone(_rank: int, _world: int, kind: str) -> list[float]:
    """What an algorithm does beside averages, it does on one rank, too."""
    import bluefog_pg
    from bluefog_pg import optim

    slow = lambda anchors: torch.optim.SGD(anchors, lr=0.5, momentum=0.5)  # noqa: E731
    order = optim.QuasiGlobalMomentum(0.5) if kind == "quasi" else optim.LocalSteps(slow)
    model = alike_weights()
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model), model, order=order)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        model(ONE).sum().backward()
        optimizer.step()
        found.append(model.weight.item())
    optimizer.close()
    return found


def test_algorithms_on_one_rank(pool: harness.Pool) -> None:
    """Of gradient 1: w - 0.1 (1 + m / 2), m of the moves; and anchors that move by half of 0.1."""
    (quasi,) = pool.run(alone, "quasi", world=1)
    assert quasi == pytest.approx([0.9, 0.775, 0.63125], abs=1e-12)
    (slow,) = pool.run(alone, "slow", world=1)
    assert slow == pytest.approx([0.95, 0.875, 0.7875], abs=1e-12)


def around_a_hub(rank: int, world: int) -> float:
    """Many meet one that meets but one at a time: the largest number that any has had."""
    import bluefog_pg
    from bluefog_pg import optim, topology_util

    model = alike_weights(float(rank == 0))
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.0),
        model,
        order=optim.AsynchronousPairs(),
        topology=topology_util.StarGraph(world),
    )
    far = 0.0
    for _ in range(40):
        model(ONE).sum().backward()
        optimizer.step()
        far = max(far, abs(model.weight.item()))
        time.sleep(0.02 if rank == 0 else 0.002)
    optimizer.close()
    return far


@pytest.mark.slow
def test_pairs_around_a_hub() -> None:
    assert max(harness.run_ranks(around_a_hub, 8)) <= 1 + 1e-9
