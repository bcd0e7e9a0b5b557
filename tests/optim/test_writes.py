"""Programs may write to parameters between the forward pass and step()."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.support import harness, inrank
from tests.support.optimizers import assert_at, gathered, loss_of, matrices, vector, wrapped

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
    """Swap other weights in for a moment, as a program does."""
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


def kept_at_the_end(rank: int, world: int, how: str) -> None:
    """What the program has written is not overwritten by an average of what was before."""
    model, optimizer = wrapped(rank, topology="full")
    loss_of(model, rank, 0).backward()
    with torch.no_grad():
        for param in model.parameters():
            param.fill_(rank)
    if how == "synchronize":
        optimizer.synchronize()
    elif how == "close":
        optimizer.close()
    else:
        wrapped_again = wrap_again(model)
        wrapped_again.close()
    wanted = (world - 1) / 2 if how == "synchronize" else rank
    assert_at(model, float(wanted))
    if not optimizer.is_closed:
        optimizer.close()


def wrap_again(model: nn.Module) -> Any:
    import bluefog_pg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        return bluefog_pg.DistributedOptimizer(plain, model, order="atc")


@pytest.mark.parametrize("how", ["synchronize", "close", "another optimizer"])
def test_what_is_written_stays(pool: harness.Pool, how: str) -> None:
    pool.run(kept_at_the_end, how)


def clamped_windows(rank: int, world: int) -> None:
    """An average by windows has what has come, though the program has written meanwhile."""
    model, optimizer = wrapped(rank, topology="one-peer-exp2", communication="win_put")
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for number in range(40):
        dist.barrier()
        loss_of(model, rank, number).backward()
        with torch.no_grad():
            for param in model.parameters():
                param.clamp_(-9, 9)
        dist.barrier()
        optimizer.step()
    apart = gathered(vector(model)).std(0).max().item()
    optimizer.close()
    assert apart < 1e-3, f"{apart} apart"


def test_windows_average_though_the_program_writes(pool: harness.Pool) -> None:
    pool.run(clamped_windows)


def written_alone(rank: int, world: int, communication: str) -> inrank.Raised | None:
    """Only rank 0 writes: it makes the average again, which no other rank does."""
    group = dist.new_group(list(range(world)), timeout=timedelta(seconds=2 * inrank.SLOW))
    options = {"communication": communication, "topology": "full", "group": group}
    model, optimizer = wrapped(rank, **options)
    error = None
    for number in range(3):
        loss_of(model, rank, number).backward()
        if rank == 0 and number == 1:
            clamp(model)
        error = inrank.catch(optimizer.step)
        if error:  # Otherwise rank 0 may come to the next average while the others still wait.
            break
    dist.barrier()
    dist.destroy_process_group(group)
    return error


@pytest.mark.slow
@pytest.mark.parametrize("communication", ["neighbor_allreduce", "allreduce"])
def test_a_write_of_one_rank_alone_is_an_error(pool: harness.Pool, communication: str) -> None:
    for error in pool.run(written_alone, communication):
        assert error is not None, "the ranks averaged what does not belong together"


def refused(rank: int, world: int) -> inrank.Raised | None:
    model, optimizer = wrapped(rank, topology="ring")
    loss_of(model, rank, 0).backward()
    by_data(model)
    error = inrank.catch(optimizer.step)
    optimizer.close()
    return error


def test_a_write_without_a_trace_is_an_error(pool: harness.Pool) -> None:
    for error in pool.run(refused):
        harness.raised(error, "RuntimeError", text="wrote to 2.bias of shape [4] through .data")
        harness.raised(error, "RuntimeError", text='order="atc"')


class Sharp(torch.optim.Optimizer):
    """Sharp is sharpness-aware as most implementations are: it needs its closure, in its midst."""

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
    """Train by w <- average(w) - lr gradient(w + e), with the gradient at this rank's own w."""
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


class Bare(torch.optim.Optimizer):
    """Bare calls its closure as it is, as optimizers did before torch had no_grad decorators."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Callable[[], Tensor] | None = None) -> Any:  # type: ignore[override]
        loss = closure() if closure else None
        for group in self.param_groups:
            for param in group["params"]:
                param.data.add_(param.grad, alpha=-0.1)
        return loss


def bare(rank: int, world: int, every: int) -> float:
    import bluefog_pg

    model, _ = wrapped(rank, communication="empty")
    optimizer: Any = Bare(model.parameters())
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, model, topology="full", every=every)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, rank, 0)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(20)]
    exchanges: int = optimizer.tally.exchanges
    optimizer.close()
    assert losses[-1] < losses[0] or rank == 0  # Rank 0 begins near to its own best.
    return exchanges


@pytest.mark.parametrize("every", [1, 2])
def test_an_optimizer_that_calls_its_closure_bare(pool: harness.Pool, every: int) -> None:
    for exchanges in pool.run(bare, every):
        assert exchanges == pytest.approx(20 / every, abs=1)
