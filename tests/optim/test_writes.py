"""Programs that write to parameters between the forward pass and step()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support import harness, inrank
from tests.support.optimizers import gathered, loss_of, matrices, vector, wrapped

SHARPNESS = 0.3


@torch.no_grad()
def clamp(model: nn.Module) -> None:
    for param in model.parameters():
        param.clamp_(-0.05, 0.05)


@torch.no_grad()
def replace(model: nn.Module) -> None:
    for param in model.parameters():
        param.data = param * 0.5


@torch.no_grad()
def exponential_average(model: nn.Module) -> None:
    """The program swaps other weights in for a moment."""
    kept = [param.clone() for param in model.parameters()]
    for param in model.parameters():
        param.mul_(2)
    for param, values in zip(model.parameters(), kept, strict=True):
        param.copy_(values)


@torch.no_grad()
def by_data(model: nn.Module) -> None:
    model[2].bias.data[0] += 1e-9


WRITES: dict[str, Callable[[nn.Module], None]] = {
    "in place": clamp,
    "other memory": replace,
    "restored": exponential_average,
}


def followed(rank: int, world: int, name: str, options: dict[str, Any]) -> None:
    """What is averaged is what the parameters hold when step() is called."""
    model, optimizer = wrapped(rank, topology="one-peer-exp2", **options)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    averages = matrices("one-peer-exp2", world)
    for number in range(4):
        loss_of(model, rank, number).backward()
        WRITES[name](model)
        rows = gathered(vector(model))
        optimizer.step()
        off = (vector(model) - (next(averages) @ rows)[rank]).abs().max()
        assert off < 1e-12, (number, off)
    optimizer.close()


@pytest.mark.parametrize("options", [{}, {"bucket_bytes": 100}], ids=str)
@pytest.mark.parametrize("name", WRITES)
def test_the_average_is_of_what_is_there(
    pool: harness.Pool, name: str, options: dict[str, Any]
) -> None:
    pool.run(followed, name, options)


def refused(rank: int, world: int) -> inrank.Raised | None:
    model, optimizer = wrapped(rank, topology="ring")
    loss_of(model, rank, 0).backward()
    by_data(model)
    error = inrank.catch(optimizer.step)
    optimizer.close()
    return error


def test_a_write_without_a_trace_is_an_error(pool: harness.Pool) -> None:
    for error in pool.run(refused):
        harness.raised(error, "RuntimeError", text="written to 2.bias of shape [4] by way of .data")
        harness.raised(error, "RuntimeError", text='order="atc"')


class Sharp(torch.optim.Optimizer):
    """Sharpness-aware, as most implementations are: it needs its closure, in its midst."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> None:  # type: ignore[override]
        assert closure is not None, "needs a closure"
        params = [param for group in self.param_groups for param in group["params"]]
        kept = [param.clone() for param in params]
        for param in params:
            param.add_(param.grad, alpha=SHARPNESS)
        with torch.enable_grad():
            closure()
        for param, values in zip(params, kept, strict=True):
            param.data = values
            param.sub_(param.grad, alpha=0.1)


def sharpened(rank: int, world: int, order: str) -> None:
    """w <- average(w) - lr gradient(w + e): the gradient is at this rank's own parameters."""
    import bluefog_pg

    model, _ = wrapped(rank, communication="empty")
    optimizer: Any = Sharp(model.parameters())
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, model, order=order, topology="ring")
    average = next(matrices("ring", world))
    for number in range(3):
        optimizer.zero_grad()
        loss_of(model, rank, number).backward()
        own = vector(model)
        grad = gradient_at(model, own + SHARPNESS * flat_gradient(model), rank, number)
        rows = gathered(own - 0.1 * grad if order == "atc" else own)

        def closure(number: int = number) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, rank, number)
            loss.backward()
            return loss

        optimizer.step(closure)
        wanted = (average @ rows)[rank] - (0 if order == "atc" else 0.1 * grad)
        off = (vector(model) - wanted).abs().max()
        assert off < 1e-12, (number, off)
    optimizer.close()


def flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([param.grad.flatten() for param in model.parameters()])


def gradient_at(model: nn.Module, at: Tensor, rank: int, number: int) -> Tensor:
    from tests.support.optimizers import make_model

    other = make_model()
    nn.utils.vector_to_parameters(at, other.parameters())
    loss_of(other, rank, number).backward()
    return flat_gradient(other)


@pytest.mark.parametrize("order", ["awc", "atc"])
def test_an_optimizer_that_needs_its_closure(pool: harness.Pool, order: str) -> None:
    pool.run(sharpened, order)
