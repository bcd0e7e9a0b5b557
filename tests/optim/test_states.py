"""Hooks of distributed optimizers, and states and copies of them and of what they train."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support import harness
from tests.support.one_weight import ONE, alike_weights, sgd, warned_by
from tests.support.optimizers import STEPS, expected, make_model, shift, step, vector, wrapped

pytestmark = harness.only_bluefog


def hooked(rank: int, _world: int) -> list[int]:
    model, optimizer = wrapped(rank)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    step(model, optimizer, rank)
    before = len(calls)
    optimizer.load_state_dict(optimizer.state_dict())
    step(model, optimizer, rank)
    optimizer.close()
    return [before, len(calls)]


def test_hooks_of_steps_are_called_once(pool: harness.Pool) -> None:
    assert pool.run(hooked) == [[1, 2]] * 4


def loaded(_rank: int, _world: int) -> float:
    """The outer optimizer's anchors do not pull back to what was before."""
    import bluefog_pg
    from bluefog_pg import optim

    model = alike_weights()
    order = optim.LocalSteps(lambda anchors: torch.optim.SGD(anchors, lr=0.5))
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model, 0.0), model, "allreduce", order=order)
    for value in (1.0, 5.0):
        model.load_state_dict({"weight": torch.full((1, 1), value, dtype=torch.float64)})
        model(ONE).sum().backward()
        optimizer.step()
    optimizer.close()
    return model.weight.item()


def test_a_model_loaded_between_local_steps(pool: harness.Pool) -> None:
    assert pool.run(loaded) == [5.0] * 4


def pickled(rank: int, _world: int) -> None:
    model, optimizer = wrapped(rank)
    step(model, optimizer, rank)
    again = pickle.loads(pickle.dumps(optimizer))
    optimizer.close()
    assert type(again) is torch.optim.SGD, type(again)
    assert len(again.state) == len(optimizer.state), again.state
    assert again.param_groups[0]["lr"] == 0.1, again


def test_a_pickled_optimizer_is_a_plain_one(pool: harness.Pool) -> None:
    pool.run(pickled)


def part_loaded(rank: int, _world: int) -> None:
    """An average is under way, and does not overwrite what is loaded into a part of the model."""
    import bluefog_pg

    model = nn.Sequential(alike_weights(float(rank)), alike_weights(float(rank)))
    trained = bluefog_pg.DecentralizedDataParallel(
        model, lambda named: torch.optim.SGD([p for _, p in named], lr=0.0), topology="full"
    )
    for _ in range(2):
        trained(ONE).sum().backward()
    model[0].load_state_dict({"weight": 7 * ONE})
    trained(ONE).sum().backward()
    trained.close()
    assert model[0].weight.item() == 7.0, model[0].weight


def test_a_part_of_a_model_loaded(pool: harness.Pool) -> None:
    pool.run(part_loaded)


def taken_over(rank: int, world: int, is_dropped: bool) -> None:
    """The second one averages alone, though the first one was not closed, or is not yet gone."""
    import bluefog_pg

    model = make_model()
    shift(model, rank)
    first: Any = bluefog_pg.DistributedOptimizer(sgd(model), model, topology="ring")
    tally = first.tally
    if is_dropped:
        first = None
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    second: list[Any] = []

    def wrap() -> None:
        second.append(
            bluefog_pg.DistributedOptimizer(sgd(model, **options), model, topology="ring")
        )

    assert warned_by(wrap, "another one has averaged these parameters") == 1
    for number in range(STEPS):
        step(model, second[0], rank, number)
    second[0].close()
    wanted = expected(world, "sgd", "neighbor_allreduce", "awc", "ring")[rank]
    off = (vector(model) - wanted).abs().max().item()
    assert off < 1e-12, f"off by {off}"
    assert tally.exchanges == 0, tally


@pytest.mark.parametrize("is_dropped", [False, True])
def test_the_last_optimizer_of_parameters_has_them(pool: harness.Pool, is_dropped: bool) -> None:
    pool.run(taken_over, is_dropped)


def two_by_windows(_rank: int, _world: int) -> int:
    """Two models of one class."""
    import bluefog_pg

    both = [
        bluefog_pg.DecentralizedDataParallel(
            nn.Sequential(nn.Linear(2, 1)),
            lambda named: torch.optim.SGD([p for _, p in named], lr=0.1),
            sync=False,
        )
        for _ in range(2)
    ]
    for model in both:
        model(torch.ones(1, 2)).sum().backward()
        model.close()
    return len(both)


@pytest.mark.slow
def test_two_wrappers_by_windows(pool: harness.Pool) -> None:
    assert pool.run(two_by_windows) == [2] * 4


def recorded(rank: int, _world: int) -> list[float]:
    """Windows are made anew, and what was put into the old ones stays counted."""
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, communication="win_put", topology="full")
    recorder = optim.Recorder(optimizer, None)
    sent = []
    for topology in ("ring", "full", "ring"):
        for number in range(3):
            step(model, optimizer, rank, number)
        dist.barrier()
        sent.append(recorder.write(0)["bytes_sent"])
        optimizer.set_topology(topology)
    sent.append(recorder.write(0)["bytes_sent"])
    optimizer.close()
    return sent


def test_bytes_of_windows_that_were_freed(pool: harness.Pool) -> None:
    for sent in pool.run(recorded):
        assert all(count >= 0 for count in sent), sent
        assert all(count > 0 for count in sent[:3]), sent
