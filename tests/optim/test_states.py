"""Distributed optimizers keep hooks, and states and copies of them and of what they train."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support import harness, inrank
from tests.support.one_weight import ONE, alike_weights, sgd
from tests.support.optimizers import (
    OPTIMIZERS,
    gathered,
    make_model,
    step,
    vector,
    wrapped,
)


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


def restored(rank: int, _world: int) -> None:
    """A state_dict goes to the plain optimizer and back; so does a training."""
    model, optimizer = wrapped(rank, "adam")
    for number in range(3):
        step(model, optimizer, rank, number)
    other = make_model()
    other.load_state_dict(model.state_dict())
    plain = OPTIMIZERS["adam"](other.parameters())
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    again, renewed = wrapped(rank, "adam")
    again.load_state_dict(other.state_dict())
    renewed.load_state_dict(plain.state_dict())
    for number in range(3, 6):
        step(model, optimizer, rank, number)
    for number in range(3, 6):
        step(again, renewed, rank, number)
    assert torch.equal(vector(model), vector(again))


def test_checkpoints(pool: harness.Pool) -> None:
    pool.run(restored)


def resumed(rank: int, _world: int, order: str) -> None:
    """A resumed algorithm has its memory, too; the plain optimizer takes the rest."""
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, order=getattr(optim, order)())
    for number in range(3):
        step(model, optimizer, rank, number)
    other = make_model()
    other.load_state_dict(model.state_dict())
    saved = copy.deepcopy(optimizer.state_dict())
    plain = OPTIMIZERS["sgd"](other.parameters())
    plain.load_state_dict(copy.deepcopy(saved))
    step(other, plain, rank)
    again, renewed = wrapped(rank, order=getattr(optim, order)())
    again.load_state_dict(model.state_dict())
    renewed.load_state_dict(copy.deepcopy(saved))
    for number in range(3, 6):
        step(model, optimizer, rank, number)
        step(again, renewed, rank, number)
    assert torch.equal(vector(model), vector(again))


@pytest.mark.parametrize("order", ["ExactDiffusion", "GradientTracking", "QuasiGlobalMomentum"])
def test_algorithms_are_resumed(pool: harness.Pool, order: str) -> None:
    pool.run(resumed, order)


def saved_by_all(rank: int, world: int, path: str) -> list[float]:
    """Average first, so that what is saved once stands for all ranks."""
    import torch.distributed.checkpoint as checkpoint

    import bluefog_pg

    model, optimizer = wrapped(rank, "adam")
    step(model, optimizer, rank)
    bluefog_pg.allreduce_parameters(model.parameters())
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.save(state, checkpoint_id=path)
    return vector(model).tolist()


def loaded_by_others(rank: int, world: int, path: str) -> list[float]:
    import torch.distributed.checkpoint as checkpoint

    model, optimizer = wrapped(rank, "adam")
    step(model, optimizer, rank)  # This makes a state to load into.
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.load(state, checkpoint_id=path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    found = vector(model).tolist()
    step(model, optimizer, rank)
    return found


def test_resumed_on_another_world_size(pool: harness.Pool, tmp_path: Path) -> None:
    (first, *_) = pool.run(saved_by_all, str(tmp_path))
    assert pool.run(loaded_by_others, str(tmp_path), world=3) == [first] * 3


def loaded_amid(rank: int, _world: int, options: dict[str, Any]) -> None:
    """A state that is loaded amid a step stays; windows do not bring back what was before."""
    model, optimizer = wrapped(rank, topology="full", **options)
    state = {name: torch.full_like(value, 42.0) for name, value in model.state_dict().items()}
    if options.get("communication") != "win_put":
        step(model, optimizer, rank)
        model(torch.zeros(1, 1, 4, 4, dtype=torch.float64))
    model.load_state_dict(state)
    optimizer.zero_grad()
    inrank.barrier(rank, 4)
    if rank == 0:  # Rank 0 is first, and alone.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer.step() if options else optimizer.synchronize()
    found = vector(model)
    inrank.barrier(rank, 4)
    optimizer.close()
    assert found.sub(42).abs().max() < 1e-12, f"{found.min()} to {found.max()}"


@pytest.mark.parametrize("options", [{}, {"communication": "win_put", "order": "atc"}])
def test_a_state_that_is_loaded_amid(pool: harness.Pool, options: dict[str, Any]) -> None:
    pool.run(loaded_amid, options)


def copied(rank: int, _world: int) -> None:
    """Copies of the model (EMA) tell of no passes; those of the optimizer are plain."""
    model, optimizer = wrapped(rank, topology="full")
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged(torch.zeros(1, 1, 4, 4, dtype=torch.float64))
    pickle.loads(pickle.dumps(model))
    assert not optimizer.tally.exchanges, "the copy has told of a pass"
    other = copy.deepcopy(optimizer)
    assert type(other) is torch.optim.SGD, type(other)
    assert other.param_groups[0]["lr"] == 0.1, other
    step(model, optimizer, rank)
    averaged.update_parameters(model)
    assert optimizer.tally.exchanges == 1, f"{optimizer.tally}"


def test_copies(pool: harness.Pool) -> None:
    pool.run(copied)


def of_another_rank(rank: int, _world: int, path: str, order: str) -> None:
    """All load what rank 0 has saved; what they remember has the sum that it must have."""
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, order=getattr(optim, order)(), topology="ring")
    for number in range(3):
        step(model, optimizer, rank, number)
    if rank == 0:
        torch.save(optimizer.state_dict(), path)
    dist.barrier()
    again, renewed = wrapped(rank, order=getattr(optim, order)(), topology="ring")
    renewed.load_state_dict(torch.load(path))
    step(again, renewed, rank, 3)
    memory = renewed.state_dict()["bluefog"]["memory"]
    if order == "ExactDiffusion":
        (part,) = memory["correction"]
    else:
        (tracker,), (gradient,) = memory["tracker"], memory["gradient"]
        part = tracker - gradient
    off = gathered(part).sum(0).abs().max().item()
    assert off < 1e-12, f"sums to {off}, not 0"


@pytest.mark.parametrize("order", ["ExactDiffusion", "GradientTracking"])
def test_states_of_another_rank_are_begun_anew(
    pool: harness.Pool, order: str, tmp_path: Any
) -> None:
    pool.run(of_another_rank, str(tmp_path / "state"), order)
