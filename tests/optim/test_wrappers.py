"""Optimizers may wrap others, be patched, or keep copies, and a framework may wrap the model."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support import harness, inrank
from tests.support.one_weight import ONE, alike_weights, sgd, warned_by


class Lookahead(torch.optim.Optimizer):
    """A Lookahead wraps an optimizer without super().__init__(), as in many repositories."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.optimizer, self.param_groups, self.state = base, base.param_groups, base.state

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


class LooksLikeOne:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups


def refused(rank: int, world: int) -> list[Any]:
    """An optimizer that is refused leaves nothing: the one inside it can be wrapped afterwards."""
    from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer

    import bluefog_pg

    model = alike_weights()
    memory = model.weight.data_ptr()
    made = {
        "Lookahead": Lookahead(sgd(model)),
        "PostLocalSGDOptimizer": PostLocalSGDOptimizer(sgd(model), None),
        "LooksLikeOne": LooksLikeOne(sgd(model)),
        "ZeroRedundancyOptimizer": ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, lr=0.1
        ),
    }
    wrap = bluefog_pg.DistributedOptimizer
    errors = [inrank.catch(wrap, optimizer, model, "win_put") for optimizer in made.values()]
    assert model.weight.data_ptr() == memory
    assert not bluefog_pg.window_stats()
    assert not model._forward_pre_hooks
    inside: list[Any] = []
    told = warned_by(lambda: inside.append(wrap(sgd(model), model, "win_put")), "another one")
    inside[0].close()
    return [told, *errors]


def test_wrappers_are_refused_whole(pool: harness.Pool) -> None:
    for told, *errors in pool.run(refused):
        assert told == 0
        for error in errors[:3]:
            harness.raised(error, "TypeError", text="make that one distributed first")
        harness.raised(errors[3], "ValueError", text="that it shards distributed instead")


def sharded(rank: int, world: int) -> list[inrank.Raised | None]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import bluefog_pg

    model = nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    return [
        inrank.catch(bluefog_pg.DistributedOptimizer, sgd(model), model),
        inrank.catch(bluefog_pg.allreduce_parameters, model.state_dict()),
    ]


def test_shards_are_refused(pool: harness.Pool) -> None:
    for of_optimizer, of_state in pool.run(sharded):
        harness.raised(of_optimizer, "ValueError", text="neighbor_allreduce(param.to_local()")
        harness.raised(of_state, "TypeError", text="tensor.to_local()")


def half_made(rank: int, world: int) -> None:
    """A constructor that fails after it has moved the parameters undoes that, too."""
    import bluefog_pg
    from bluefog_pg.optim.windows import WindowAverage

    model = alike_weights()
    memory = model.weight.data_ptr()
    opened = WindowAverage.open

    def fails(self: Any, buckets: Any) -> None:
        opened(self, buckets)
        raise RuntimeError("midway")

    WindowAverage.open = fails  # type: ignore[method-assign]
    try:
        error = inrank.catch(bluefog_pg.DistributedOptimizer, sgd(model), model, "win_put")
    finally:
        WindowAverage.open = opened  # type: ignore[method-assign]
    harness.raised(error, "RuntimeError", text="midway")
    assert not model._forward_pre_hooks
    assert not bluefog_pg.window_stats()
    # The memory is the model's own again, and not the bucket's.
    assert model.weight.data_ptr() != memory
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model), model, "win_put")
    model(ONE).backward()
    optimizer.step()
    optimizer.close()


def test_a_constructor_that_fails_midway(pool: harness.Pool) -> None:
    pool.run(half_made)


def by_function(optimizer: Any, calls: list[int]) -> None:
    inner = optimizer.step

    @functools.wraps(inner)
    def step(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return inner(*args, **kwargs)

    optimizer.step = step


def by_method(optimizer: Any, calls: list[int]) -> None:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return type(self).step(self, *args, **kwargs)

    optimizer.step = types.MethodType(step, optimizer)


def after_a_scheduler(optimizer: Any, calls: list[int]) -> None:
    torch.optim.lr_scheduler.StepLR(optimizer, 10)
    by_function(optimizer, calls)


PATCHES: dict[str, Callable[[Any, list[int]], None]] = {
    "function": by_function,
    "method": by_method,
    "scheduler": after_a_scheduler,
}


def patched(rank: int, world: int, kind: str, order: str) -> list[int]:
    import bluefog_pg

    found = []
    for is_before in (True, False):
        model, calls = alike_weights(float(rank)), list[int]()
        optimizer: Any = sgd(model)
        if is_before:
            PATCHES[kind](optimizer, calls)
        optimizer = bluefog_pg.DistributedOptimizer(optimizer, model, topology="full", order=order)
        if not is_before:
            PATCHES[kind](optimizer, calls)
        for _ in range(3):
            optimizer.zero_grad()
            model(ONE).backward()
            optimizer.step()
        assert model.weight.item() == pytest.approx((world - 1) / 2 - 0.3)
        found += [len(calls), optimizer.tally.exchanges]
        optimizer.close()
        optimizer = bluefog_pg.DistributedOptimizer(optimizer, model, topology="full", order=order)
        model(ONE).backward()
        optimizer.step()
        assert len(calls) == 4, "the patch went when the optimizer was wrapped again"
        optimizer.close()
    return found


@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize("kind", PATCHES)
def test_a_patched_step_stays(pool: harness.Pool, kind: str, order: str) -> None:
    assert pool.run(patched, kind, order) == [[3, 3, 3, 3]] * 4


class Masters(torch.optim.Optimizer):
    """A Masters optimizer trains copies, which it keeps in its state."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["master"] = param.detach().double().clone()

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                param.copy_(self.state[param]["master"].sub_(param.grad, alpha=0.1))


def copying(rank: int, world: int) -> list[int]:
    import bluefog_pg

    found = []
    for kind in (Masters, functools.partial(torch.optim.Adam, lr=0.1)):
        model = nn.Linear(3, 2)
        optimizer: Any = kind(model.parameters())
        optimizer = bluefog_pg.DistributedOptimizer(optimizer, model, topology="ring")

        def step(model: nn.Module = model, optimizer: Any = optimizer) -> None:
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(1, 3)).sum().backward()
                optimizer.step()

        found.append(warned_by(step, "keeps a copy of each parameter in its state, as 'master'"))
        optimizer.close()
    return found


def test_copies_in_the_state_are_told_of(pool: harness.Pool) -> None:
    assert pool.run(copying) == [[1, 0]] * 4


def inside_another(rank: int, world: int) -> list[int]:
    """A framework puts DistributedDataParallel around the model after it was wrapped, or before."""
    import bluefog_pg

    found = []
    for is_after in (True, False):
        model = alike_weights()
        around = None if is_after else nn.parallel.DistributedDataParallel(model)
        optimizer: Any = bluefog_pg.DistributedOptimizer(sgd(model), model, topology="ring")
        around = around or nn.parallel.DistributedDataParallel(model)

        def step(around: nn.Module = around, optimizer: Any = optimizer) -> None:
            for _ in range(2):
                optimizer.zero_grad()
                around(ONE).sum().backward()
                optimizer.step()

        found.append(warned_by(step, "averages all ranks' gradients in each pass"))
        optimizer.close()
        del around, step
    model = alike_weights()
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model), model, topology="ring")
    model(ONE).sum().backward()
    found.append(warned_by(optimizer.step, "averages all ranks' gradients"))
    optimizer.close()
    dist.barrier()
    return found


def test_a_wrapper_around_the_model_is_told_of(pool: harness.Pool) -> None:
    assert pool.run(inside_another) == [[1, 1, 0]] * 4
