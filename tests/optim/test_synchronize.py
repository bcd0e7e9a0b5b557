"""synchronize() leaves its averages for step(), and step() may be told to skip them."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from tests.support import harness, inrank
from tests.support.one_weight import ONE, alike_weights, sgd
from tests.support.optimizers import assert_at, gathered, loss_of, vector, wrapped


class Tied(nn.Module):
    """A Tied has one Parameter in two places, and an RNN."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.rnn = nn.Linear(3, 3), nn.Linear(3, 3), nn.GRU(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rnn(self.b(self.a(x)))[0]
        return out


def tied(rank: int, _world: int) -> None:
    """A closure's passes, and gradients that it clips, count as the loop's would.

    synchronize() leaves the averages, which step() does not form again.
    """
    import bluefog_pg

    torch.manual_seed(rank)
    model = Tied().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, model, topology="full")

    def run() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 1, 3, dtype=torch.float64)).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        return loss

    def update() -> Tensor:
        return 0.1 * parameters_to_vector(param.grad for param in model.parameters())

    start = gathered(vector(model))
    loss = optimizer.step(run)
    assert isinstance(loss, Tensor), loss
    assert_at(model, start.mean(0) - update())
    size = update().norm().item()
    assert abs(size - 1e-4) < 1e-6, f"an update of {size} from gradients clipped to 1e-3"
    start = gathered(vector(model))
    run()
    optimizer.synchronize()
    assert_at(model, start.mean(0))
    optimizer.step()
    assert_at(model, start.mean(0) - update())
    assert model.b.weight is model.a.weight, "no longer tied"
    assert start.std(0).max() > 1e-9, "ranks agreed before they averaged"


def test_tied_weights_and_closures(pool: harness.Pool) -> None:
    pool.run(tied)


def skipping(rank: int, _world: int) -> None:
    """The average under way is finished before a skipped one, and is not lost."""
    model, optimizer = wrapped(rank, topology="full")
    mean = gathered(vector(model)).mean(0)
    loss_of(model, rank, 0).backward()
    grad = torch.cat([p.grad.flatten() for p in model.parameters()])
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.synchronize()
    wanted = mean - 0.1 * (grad + 0.01 * mean)
    assert_at(model, wanted)


def test_skip_synchronize(pool: harness.Pool) -> None:
    pool.run(skipping)


def skipped(rank: int, _world: int) -> float:
    """A step that skips the average makes no update, which was made in backward()."""
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


def passing_after(rank: int, _world: int) -> list[int]:
    """Each step has one average, though a pass follows synchronize(); a skipped step has none."""
    model, optimizer = wrapped(rank, topology="full")
    counts = []
    for how in ("synchronize", "skip", "plain"):
        before = optimizer.tally.exchanges
        loss_of(model, rank, 0).backward()
        if how == "synchronize":
            optimizer.synchronize()
            loss_of(model, rank, 0)
        with optimizer.skip_synchronize() if how == "skip" else contextlib.nullcontext():
            optimizer.step()
        counts.append(optimizer.tally.exchanges - before)
    optimizer.close()
    return counts


def test_one_average_a_step(pool: harness.Pool) -> None:
    assert pool.run(passing_after) == [[1, 1, 1]] * 4


def passing_alone(rank: int, world: int) -> inrank.Raised | None:
    """Rank 0 makes one more pass after the last step; the others go on to something else."""
    group = dist.new_group(list(range(world)))
    model, optimizer = wrapped(rank, topology="ring", group=group)
    loss_of(model, rank, 0).backward()
    optimizer.step()
    if rank == 0:
        loss_of(model, rank, 1)
        error = inrank.catch(optimizer.synchronize)
    else:
        error = inrank.catch(dist.all_reduce, torch.ones(1), group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    return error


def test_a_pass_of_one_rank_alone(pool: harness.Pool) -> None:
    first, *others = pool.run(passing_alone)
    harness.raised(first, "Mismatch", text="A pass of the model's training has begun this average")
    for error in others:
        harness.raised(error, "Mismatch", text="rank 0 called neighbor_allreduce")
