"""A rank that leaves out a step hears of it in its next one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from tests.support import harness

STEPS = 8


def stepped(rank: int, world: int, passes: Sequence[int], order: str) -> list[str]:
    """Train with so many passes before each step, and return the warnings."""
    import bluefog_pg

    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = bluefog_pg.DistributedOptimizer(sgd, model, order=order)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in passes:
            for _ in range(count if rank == 1 else passes[0]):
                optimizer.zero_grad()
                model(torch.ones(2, 3)).sum().backward()
            if count == 0:  # The program calls what the model is made of.
                model.forward(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    optimizer.close()
    texts = [str(warning.message) for warning in caught]
    return [text for text in texts if "forward passes" in text]


@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize("usual", [1, 2])
@pytest.mark.parametrize("left_out", [1, 2])
def test_a_rank_that_leaves_out_steps_is_told(
    pool: harness.Pool, order: str, usual: int, left_out: int
) -> None:
    passes = [usual] * 4 + [(left_out + 1) * usual] + [usual] * 2
    none, told = pool.run(stepped, passes, order, world=2)
    assert none == []
    (text,) = told
    steps = "a step was" if left_out == 1 else f"{left_out} steps were"
    assert text.startswith(
        f"[bluefog] rank 1/2 DistributedOptimizer: the model made {passes[4]} forward passes "
        f"without gradients since the last step(), and {usual} before each of the 4 steps until "
        f"then. If {steps} left out on this rank alone"
    )


@pytest.mark.parametrize(
    "passes",
    [
        [0, 0, 0, 0, 1, 1],
        [1, 2, 3, 1, 2, 4],
        [3, 3, 3, 3, 1],
        [2, 2, 2, 2, 3],
        [1, 1, 2, 2, 2, 2],
    ],
)
def test_other_loops_hear_nothing(pool: harness.Pool, passes: list[int]) -> None:
    assert pool.run(stepped, passes, "awc", world=2) == [[], []]


def accumulated(rank: int, world: int) -> list[str]:
    """Add up more and more gradients, on all ranks."""
    import bluefog_pg

    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = bluefog_pg.DistributedOptimizer(sgd, model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in (1, 1, 1, 1, 2, 2, 4, 4):
            for _ in range(count):
                model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    optimizer.close()
    return [str(warning.message) for warning in caught]


def test_accumulation_that_grows_is_no_step_left_out(pool: harness.Pool) -> None:
    assert pool.run(accumulated, world=2) == [[], []]
