"""Trainings record metrics, and stock DistributedDataParallel takes hooks."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.support import harness, inrank
from tests.support.optimizers import gathered, step, vector, wrapped


class Scalars:
    def __init__(self) -> None:
        self.seen: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.seen.append((tag, scalar_value, global_step))


LATE = 0.5


def late(rank: int) -> None:
    """Let rank 3 be late when the others are about to step."""
    if rank < 3:
        inrank.mark("steps")
        return
    for other in range(3):
        inrank.await_file(f"at.steps.{other}")
    time.sleep(LATE)


def recorded(rank: int, _world: int, path: str) -> None:
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, topology="ring")
    file = Path(path) / "run.csv"  # Rank 0 writes this file.
    recorder, scalars = optim.Recorder(optimizer, file), Scalars()
    begun, waited = time.monotonic(), list[float]()
    other = optim.Recorder(optimizer, scalars)
    for number in range(3):
        if number == 2:  # Rank 3's neighbors, 0 and 2, have to wait for it.
            late(rank)
        step(model, optimizer, rank, number)
        found = recorder.write(number, distance=number > 0, loss=torch.tensor(0.5))
        waited.append(found["waited"])
    other.write(7)
    x = gathered(vector(model))
    rows = list(csv.DictReader(file.open()))
    apart = (x - x.mean(0)).square().sum(1).mean().sqrt().item()
    size = 2 * vector(model).nbytes
    took, tally = time.monotonic() - begun, optimizer.tally
    assert [row["step"] for row in rows] == ["0", "1", "2"], rows
    assert all(row["loss"] == "0.5" and row["exchanges"] == "1" for row in rows), rows
    assert all(size <= float(row["bytes_sent"]) < size + 600 for row in rows), (size, rows)
    assert rows[0]["consensus_distance"] == "", rows[0]
    assert abs(float(rows[-1]["consensus_distance"]) - apart) < 1e-9, (apart, rows[-1])
    assert ("exchanges", 3.0, 7) in scalars.seen, scalars.seen
    assert tally.exchanges == 3, tally
    assert abs(sum(waited) - tally.waited) < 1e-9, (waited, tally)
    if rank == 0:
        told = [float(row["waited"]) for row in rows]
        assert told == pytest.approx(waited, abs=1e-6), (told, waited)
    if rank % 2 == 0:
        assert LATE / 2 < waited[2] < took, f"waited {waited} s of {took} s"


def test_recorder(pool: harness.Pool, tmp_path: Path) -> None:
    pool.run(recorded, str(tmp_path))


def aged(rank: int, _world: int) -> None:
    """Rank 0 makes no step while its neighbors put three times, and makes one later."""
    from bluefog_pg import optim

    begun = time.monotonic()  # Nobody has a window yet.
    model, optimizer = wrapped(rank, communication="win_put", topology="ring")
    recorder = optim.Recorder(optimizer, Scalars())
    for number in range(3 if rank else 0):
        step(model, optimizer, rank, number)
    dist.barrier()
    before = recorder.write(0)
    time.sleep(0.1)  # What another rank than rank 0 has put is so old then, on each rank.
    if rank == 0:
        step(model, optimizer, rank)
    dist.barrier()
    after = recorder.write(1)
    optimizer.close()
    took = time.monotonic() - begun
    assert 0.1 <= after["age"] < took, f"{after} after {took} s"
    if rank == 0:
        assert (before["lag"], after["lag"]) == (3, 0), (before, after)


def test_staleness(pool: harness.Pool) -> None:
    pool.run(aged)


def hooked(rank: int, world: int, topology: str) -> None:
    """Average by the hook, where each rank's gradient is its number."""
    from bluefog_pg import ddp_hooks

    model = DistributedDataParallel(nn.Linear(3, 1, bias=False))
    model.register_comm_hook(ddp_hooks.NeighborState(topology), ddp_hooks.neighbor_average_hook)
    bad = []
    for number in range(4):
        model.zero_grad()
        (rank * model(torch.ones(1, 3))).sum().backward()
        if topology == "ring":
            wanted = sum((rank + d) % world for d in (-1, 0, 1)) / 3
        else:
            wanted = (rank + (rank - 2 ** (number % 2)) % world) / 2
        got = model.module.weight.grad
        if not torch.allclose(got, torch.full_like(got, wanted)):
            bad.append(f"step {number}: {got} instead of {wanted}")
    assert not bad, bad


@pytest.mark.parametrize("topology", ["ring", "one-peer-exp2"])
def test_gradients_of_neighbors(pool: harness.Pool, topology: str) -> None:
    pool.run(hooked, topology)


def averaged_now_and_then(rank: int, _world: int) -> None:
    """Train stock DDP without averages of gradients, by torch's optimizer that averages
    parameters.
    """
    from torch.distributed.optim import PostLocalSGDOptimizer

    from bluefog_pg import ddp_hooks

    model = DistributedDataParallel(nn.Linear(3, 1, bias=False))
    model.register_comm_hook(None, ddp_hooks.no_average_hook)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        ddp_hooks.NeighborAverager(period=2, warmup_steps=1, topology="full"),
    )
    for has_met in (False, True, False, True):
        optimizer.zero_grad()
        (rank * model(torch.ones(1, 3))).sum().backward()
        optimizer.step()
        apart = gathered(model.module.weight.detach()).std(0)
        assert (apart < 1e-6).all() == has_met, f"{apart} apart"


def test_averages_now_and_then(pool: harness.Pool) -> None:
    pool.run(averaged_now_and_then)
