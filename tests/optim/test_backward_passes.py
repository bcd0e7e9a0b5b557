"""Backward passes that fail, or are not all of an optimizer's step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support import harness, inrank
from tests.support.one_weight import ONE, alike_weights, sgd, warned_by
from tests.support.optimizers import gathered, loss_of, step, vector, wrapped

pytestmark = harness.only_bluefog


class Failing(nn.Module):
    """In its backward pass, if it is told to."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.inner, self.fails = nn.Sequential(alike_weights(rank), alike_weights(rank)), False

    def forward(self, x: Tensor) -> Tensor:
        middle = self.inner[0](x)
        if self.fails:
            middle.register_hook(lambda _: 1 / 0)
        out: Tensor = self.inner[1](middle)
        return out


def failed(rank: int, _world: int, kind: str) -> None:
    """In eval mode no forward pass is told of; averages are formed after the next pass again."""
    import bluefog_pg

    model = Failing(rank).eval()
    if kind == "wrapper":
        trained: Any = bluefog_pg.DecentralizedDataParallel(
            model,
            lambda named: torch.optim.SGD([p for _, p in named], lr=0.0),
            topology="full",
            bucket_size_in_mb=1e-6,
        )
    else:
        options = {"atc": {"order": "atc", "every": 2}, "gradients": {"every": 2}}[kind]
        name = "gradient_allreduce" if kind == "gradients" else "neighbor_allreduce"
        trained = bluefog_pg.DistributedOptimizer(
            sgd(model, 0.0), model, name, topology="full", bucket_bytes=1, **options
        )
    called = trained if kind == "wrapper" else model
    model.fails = True
    error = inrank.catch(lambda: called(ONE).sum().backward())
    assert error is not None, "the pass did not fail"
    model.fails = False
    if kind != "wrapper":
        trained.step()
    for _ in range(2):
        model.zero_grad()
        called((rank + 1) * ONE).sum().backward()
    if kind == "gradients":
        found = torch.cat([p.grad.flatten() for p in model.parameters()])
    else:
        if kind != "wrapper":
            trained.step()
        found = vector(model)
    trained.close()
    apart = gathered(found).std(0).max().item()
    assert apart < 1e-9, f"{apart} apart"


@pytest.mark.parametrize("kind", ["atc", "gradients", "wrapper"])
def test_a_pass_that_fails_where_no_forward_pass_is_told_of(pool: harness.Pool, kind: str) -> None:
    pool.run(failed, kind)


def forgotten(rank: int, _world: int) -> float:
    """The first batch fails after some gradients were averaged; of the second one is the update."""
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
    """Two forward passes for each backward pass; on rank 0 one more, which nothing follows."""
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


def too_large(rank: int, _world: int, kind: str) -> None:
    """A number that diverges for one step leaves nothing behind when all have good ones again."""
    import bluefog_pg

    name, dtype, value = HUGE[kind]
    compression = getattr(bluefog_pg.optim, name)(1.0) if name[0].isupper() else name
    model = nn.Linear(4, 1, bias=False).to(dtype)
    good = {"weight": torch.full((1, 4), 1.5, dtype=dtype)}
    model.load_state_dict(good)
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.0), model, topology="full", compression=compression
    )

    def train() -> None:
        model(torch.ones(1, 4, dtype=dtype)).sum().backward()
        optimizer.step()

    train()
    if rank == 0:
        with torch.no_grad():
            model.weight[0, 0] = value
    train()
    model.load_state_dict(good)
    for _ in range(5):
        train()
        model.load_state_dict(good)
    train()
    optimizer.close()
    assert (model.weight - 1.5).abs().max() < 1e-2, f"{model.weight.tolist()}, not 1.5"


HUGE: dict[str, tuple[str, torch.dtype, float]] = {
    "fp16 of bfloat16": ("fp16", torch.bfloat16, 1e6),
    "bf16 of float16": ("bf16", torch.float16, 6e4),
    "int8": ("int8", torch.float64, 1e39),
    "top-k": ("TopK", torch.float64, 1e39),
}


@pytest.mark.parametrize("kind", HUGE)
def test_copies_outlive_what_is_too_large(pool: harness.Pool, kind: str) -> None:
    pool.run(too_large, kind)


def counted(rank: int, _world: int, kind: str) -> int:
    """Two passes for each step, of which each second is with an exchange."""
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


def skipped(rank: int, _world: int) -> float:
    """The update was made in backward(): a step that skips the average makes none."""
    import bluefog_pg
    from bluefog_pg import optim

    model = alike_weights()
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.5), model, order=optim.AdaptThenCombine(in_backward=True)
    )
    model(ONE).sum().backward()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.close()
    return model.weight.item()


def test_one_update_though_its_average_is_skipped(pool: harness.Pool) -> None:
    assert pool.run(skipped) == [0.5] * 4


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
