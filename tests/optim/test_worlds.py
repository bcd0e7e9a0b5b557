"""Distributed optimizers work on one rank, and in pairs of many ranks, one of them slow."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from tests.support import harness
from tests.support.one_weight import ONE, alike_weights, sgd
from tests.support.optimizers import OPTIMIZERS, make_model, step, vector, wrapped


def alone(_rank: int, _world: int, kind: str) -> list[float]:
    """Return the weight after each step: an algorithm does more than averages on one rank, too."""
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
    """The gradient is 1: w - 0.1 (1 + m / 2), m of the moves; anchors move by half of 0.1."""
    (quasi,) = pool.run(alone, "quasi", world=1)
    assert quasi == pytest.approx([0.9, 0.775, 0.63125], abs=1e-12)
    (slow,) = pool.run(alone, "slow", world=1)
    assert slow == pytest.approx([0.95, 0.875, 0.7875], abs=1e-12)


def around_a_hub(rank: int, world: int) -> float:
    """Return the largest number that a rank has had where many meet one hub in turn."""
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


def beside_a_plain_one(rank: int, world: int, communication: str) -> None:
    model, optimizer = wrapped(rank, communication=communication)
    plain = make_model()
    own = OPTIMIZERS["sgd"](plain.parameters())
    for number in range(3):
        step(model, optimizer, rank, number)
        step(plain, own, rank, number)
    optimizer.close()
    assert torch.equal(vector(model), vector(plain)), f"{vector(model)}, not {vector(plain)}"


@pytest.mark.parametrize(
    "communication", ["neighbor_allreduce", "win_put", "gradient_allreduce", "push_sum"]
)
def test_one_rank(pool: harness.Pool, communication: str) -> None:
    pool.run(beside_a_plain_one, communication, world=1)


def back_again(rank: int, _world: int) -> None:
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, order=optim.AsynchronousPairs(), topology="full")
    for communication in ("empty", "neighbor_allreduce"):
        step(model, optimizer, rank)
        optimizer.communication = communication
    for number in range(20):
        step(model, optimizer, rank, number)
    met = optimizer.tally.exchanges
    optimizer.close()
    assert met > 3, f"met {met} times"


def test_pairs_pause_and_go_on(pool: harness.Pool) -> None:
    pool.run(back_again)


def beside_a_slow_rank(rank: int, world: int) -> None:
    """The last rank is thirty times slower; no rank leaves the range in which they began."""
    import bluefog_pg
    from bluefog_pg import optim

    model = nn.Linear(3, 1, bias=False).double()
    nn.init.constant_(model.weight, float(rank))
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0),
        model,
        order=optim.AsynchronousPairs(),
        topology="full",
    )
    far = 0.0
    for _ in range(10 if rank == world - 1 else 300):
        model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        optimizer.step()
        far = max(far, (vector(model) - (world - 1) / 2).abs().max().item())
        time.sleep(0.06 if rank == world - 1 else 0.002)
    optimizer.close()
    assert far <= (world - 1) / 2 + 1e-9, f"up to {far} from the middle"


@pytest.mark.slow
def test_pairs_beside_a_slow_rank() -> None:
    harness.run_ranks(beside_a_slow_rank, 8)
