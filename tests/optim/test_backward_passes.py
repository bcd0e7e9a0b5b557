"""Backward passes may fail, come without a forward pass, or be a part of a step only."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support import harness, inrank
from tests.support.one_weight import ONE, alike_weights, sgd, warned_by
from tests.support.optimizers import (
    STEPS,
    assert_at,
    expected,
    gathered,
    loss_of,
    make_model,
    shift,
    vector,
    wrapped,
)


class Failing(nn.Module):
    """A Failing model fails in its backward pass, if it is told to."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.inner, self.fails = nn.Sequential(alike_weights(rank), alike_weights(rank)), False

    def forward(self, x: Tensor) -> Tensor:
        middle = self.inner[0](x)
        if self.fails:
            middle.register_hook(lambda _: 1 / 0)
        out: Tensor = self.inner[1](middle)
        return out


FAILING: dict[str, dict[str, Any]] = {
    "gradients": {"communication": "gradient_allreduce"},
    "gradients of two passes": {"communication": "gradient_allreduce", "every": 2},
    "atc": {"order": "atc", "every": 2},
    "atc of two passes": {"order": "atc", "every": 2},
    "in backward": {},
    "wrapper": {},
}


def failed(rank: int, _world: int, kind: str, is_eval: bool) -> None:
    """The first batch fails on all ranks, and two more follow.

    In eval mode no forward pass is told of: the step() that follows ends the pass that failed.
    """
    import bluefog_pg

    model, options = Failing(rank).train(not is_eval), FAILING[kind]
    if kind == "wrapper":
        # The wrapper averages an update in the next pass, so a last one would leave ranks apart.
        trained: Any = bluefog_pg.DecentralizedDataParallel(
            model,
            lambda named: torch.optim.SGD([p for _, p in named], lr=0.0),
            topology="full",
            bucket_size_in_mb=1e-6,
        )
    else:
        if kind == "in backward":
            options = {"order": bluefog_pg.optim.AdaptThenCombine(in_backward=True)}
        trained = bluefog_pg.DistributedOptimizer(
            sgd(model), model, topology="full", bucket_bytes=1, **options
        )
    called = trained if kind == "wrapper" else model
    model.fails = True
    error = inrank.catch(lambda: called(ONE).sum().backward())
    harness.raised(error, "ZeroDivisionError")
    model.fails = False
    if is_eval and kind != "wrapper":
        trained.step()
    for number in range(2):
        model.zero_grad()
        called((rank + 1) * ONE).sum().backward()
        if number == 0 and kind.endswith("of two passes"):
            continue
        if kind.startswith("gradients"):
            assert_alike(torch.cat([p.grad.flatten() for p in model.parameters()]))
        if kind != "wrapper":
            trained.step()
    trained.close()
    if not kind.startswith("gradients"):
        assert_alike(vector(model))


def assert_alike(x: Tensor) -> None:
    apart = gathered(x).std(0).max().item()
    assert apart < 1e-9, f"{apart} apart"


@pytest.mark.parametrize("is_eval", [False, True])
@pytest.mark.parametrize("kind", FAILING)
def test_a_pass_that_fails(pool: harness.Pool, kind: str, is_eval: bool) -> None:
    pool.run(failed, kind, is_eval)


def forgotten(rank: int, _world: int) -> float:
    """The first batch fails after some gradients were averaged; the update is the second one's."""
    import bluefog_pg

    model = Failing(1)
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model), model, "gradient_allreduce", bucket_bytes=8
    )
    for model.fails in (True, False):
        optimizer.zero_grad()
        inrank.catch(lambda: model(ONE).sum().backward())
        if model.fails:
            optimizer.zero_grad()
    optimizer.step()
    optimizer.close()
    return model.inner[1].weight.item()


def test_gradients_of_a_failed_pass_are_forgotten(pool: harness.Pool) -> None:
    assert pool.run(forgotten) == pytest.approx([0.9] * 4, abs=1e-12)


def siamese(rank: int, _world: int, order: str) -> list[int]:
    """Make two forward passes for each backward pass.

    Rank 0 makes one more, which nothing follows.
    """
    model, optimizer = wrapped(rank, order=order, every=2, topology="full")
    met = []
    for number in range(8):
        if rank == 0:
            loss_of(model, rank, 99)
        optimizer.zero_grad()
        (loss_of(model, rank, number) + loss_of(model, rank, number + 10)).backward()
        optimizer.step()
        met.append(optimizer.tally.exchanges)
    optimizer.close()
    return met


@pytest.mark.parametrize("order", ["awc", "atc"])
def test_forward_passes_alone_count_not(pool: harness.Pool, order: str) -> None:
    assert pool.run(siamese, order) == [[0, 1, 1, 2, 2, 3, 3, 4]] * 4


def counted(rank: int, _world: int, kind: str) -> int:
    """Make two passes for each step, every second of them with an exchange."""
    from bluefog_pg import optim

    options: dict[str, Any] = {
        "push_sum": {"communication": "push_sum"},
        "quasi": {"order": optim.QuasiGlobalMomentum()},
        "atc": {"order": "atc"},
        "awc": {},
    }[kind]
    kind_of_sgd = "sgd" if kind != "quasi" else "adam"
    model, optimizer = wrapped(rank, kind_of_sgd, every=2, **options)
    for number in range(4):
        optimizer.zero_grad()
        for half in range(2):
            loss_of(model, rank, 2 * number + half).backward()
        optimizer.step()
    optimizer.close()
    return int(optimizer.tally.exchanges)


@pytest.mark.parametrize("kind", ["awc", "atc", "quasi", "push_sum"])
def test_every_counts_passes(pool: harness.Pool, kind: str) -> None:
    assert pool.run(counted, kind) == [4] * 4


def too_early(rank: int, _world: int, passes: int) -> int:
    model, optimizer = wrapped(rank, communication="gradient_allreduce", every=2)

    def train() -> None:
        for _ in range(2):
            for number in range(passes):
                loss_of(model, rank, number).backward()
            optimizer.step()

    found = warned_by(train, "drift apart for good")
    optimizer.close()
    return found


def test_a_step_before_gradients_are_averaged_is_warned_of(pool: harness.Pool) -> None:
    assert pool.run(too_early, 1) == [1] * 4
    assert pool.run(too_early, 2) == [0] * 4


def in_patterns(rank: int, _world: int, pattern: str, order: str, met: list[bool]) -> None:
    """Train by `pattern`, in which F is a forward and a backward pass, and s is a step.

    `met` says after which steps ranks agree.
    """
    model, optimizer = wrapped(rank, topology="full", every=3, order=order)
    for group in optimizer.param_groups:
        group["lr"] = group["weight_decay"] = 0.0
    steps = enumerate(met)
    for act in pattern:
        if act == "F":
            loss_of(model, rank, 0).backward()
        else:
            optimizer.step()
            optimizer.zero_grad()
            x = gathered(vector(model))
            number, has_met = next(steps)
            apart = x.std(0)
            assert (apart < 1e-9).all() == has_met, f"step {number}: {apart} apart"
            with torch.no_grad():
                shift(model, rank)
    assert next(steps, None) is None, "fewer steps than foretold"


@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize(
    ("pattern", "met"),
    [
        ("FFFsFFFs", [True, True]),
        ("FsFsFsFs", [False, False, True, False]),
        ("FFsFsFFs", [False, True, False]),
        ("FsFFsFs", [False, True, False]),
    ],
)
def test_every_third_pass(pool: harness.Pool, order: str, pattern: str, met: list[bool]) -> None:
    pool.run(in_patterns, pattern, order, met)


def accumulated(rank: int, world: int) -> None:
    """The gradients of several passes add up, and their sum is averaged over ranks."""
    model, optimizer = wrapped(0, communication="gradient_allreduce", every=2)
    plain = make_model()
    for other in range(world):
        for number in range(2):
            (loss_of(plain, other, number) / world).backward()
    for number in range(2):
        loss_of(model, rank, number).backward()
    off = max(
        (mine.grad - wanted.grad).abs().max().item()
        for mine, wanted in zip(model.parameters(), plain.parameters(), strict=True)
    )
    optimizer.step()
    assert off < 1e-12, f"off by {off}"


def test_gradients_are_accumulated(pool: harness.Pool) -> None:
    pool.run(accumulated)


def uncalled(rank: int, world: int) -> None:
    """The loop calls a method of the model, not the model, so averages are formed in step()."""
    model, optimizer = wrapped(rank, topology="full")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(STEPS):
            optimizer.zero_grad()
            loss_of(model.forward, rank, number).backward()
            optimizer.step()
    ours = [str(w.message) for w in caught if "no forward pass" in str(w.message)]
    wanted = expected(world, "sgd", "neighbor_allreduce", "awc", "full")[rank]
    assert_at(model, wanted)
    assert len(ours) == 1, f"warned {ours}"
    assert f"rank {rank}/4" in ours[0], ours
    assert optimizer.tally.exchanges == STEPS, optimizer.tally


def test_a_model_that_is_not_called(pool: harness.Pool) -> None:
    pool.run(uncalled)
