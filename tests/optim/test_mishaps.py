"""What goes wrong in a training, and what of it a distributed optimizer makes up for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support import harness, inrank
from tests.support.optimizers import gathered, shift, vector

pytestmark = harness.only_bluefog


class Fails(torch.autograd.Function):
    """In its backward pass."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_ctx: Any, *_grads: Tensor) -> Any:
        raise MemoryError("no memory for this batch")


class Failing(nn.Module):
    """A layer, and behind it what fails in `backward` if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.fails = nn.Linear(2, 2), nn.Linear(2, 1), False

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(Fails.apply(x) if self.fails else x)


FAILING = {
    "gradients": {"communication": "gradient_allreduce"},
    "atc": {"order": "atc", "every": 2, "topology": "full"},
    "in backward": {"topology": "full"},
    "wrapper": {},
}


def skipped(rank: int, _world: int, kind: str) -> None:
    """The first batch fails on all ranks; training goes on with the next one."""
    import bluefog_pg

    model, options = Failing(), dict(FAILING[kind])
    shift(model, rank)
    if kind == "wrapper":
        # Its last update is averaged with the next one: so of rate 0.
        sgd = lambda named: torch.optim.SGD([p for _, p in named], lr=0.0)  # noqa: E731
        trained: Any = bluefog_pg.DecentralizedDataParallel(
            model, sgd, topology="full", bucket_size_in_mb=1e-6
        )
    else:
        if kind == "in backward":
            options["order"] = bluefog_pg.optim.AdaptThenCombine(in_backward=True)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        trained = bluefog_pg.DistributedOptimizer(sgd, model, **options, bucket_bytes=1)
    model.fails = True
    inputs = torch.full((1, 2), float(rank + 1))
    called = trained if kind == "wrapper" else model
    failure = inrank.catch(lambda: called(inputs).sum().backward())
    assert failure is not None, "the backward pass did not fail"
    model.fails = False
    for _ in range(2):
        model.zero_grad()
        called(inputs).sum().backward()
        if kind == "gradients":
            grads = gathered(torch.cat([p.grad.flatten() for p in model.parameters()]))
            assert grads.std(0).max() < 1e-6, "gradients differ"
            return
        if kind != "wrapper":
            trained.step()
    apart = gathered(vector(model)).std(0).max().item()
    trained.close()
    assert apart < 1e-6, f"{apart} apart"


@pytest.mark.parametrize("kind", FAILING)
def test_a_backward_pass_that_fails(pool: harness.Pool, kind: str) -> None:
    pool.run(skipped, kind)
