"""Training by windows gives what averages give, may be changed, and outlives ranks."""

from __future__ import annotations

import os
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support import harness, inrank
from tests.support.optimizers import (
    STEPS,
    Reference,
    assert_at,
    lockstep,
    matrices,
    step,
    turned_within,
    vector,
    wrapped,
)


def by_windows(rank: int, _world: int, communication: str) -> None:
    """Windows give in lockstep what averages of neighbors give."""
    ends = []
    for kind in ("neighbor_allreduce", communication):
        model, optimizer = wrapped(rank, communication=kind, topology="ring", bucket_bytes=200)
        for number in range(4):
            lockstep(model, optimizer, rank, number)
        ends.append(vector(model))
        optimizer.close()
    assert_at(model, ends[0])


@pytest.mark.parametrize("communication", ["win_put", "win_get"])
def test_windows(pool: harness.Pool, communication: str) -> None:
    pool.run(by_windows, communication)


def interrupted(rank: int, world: int, communication: str) -> None:
    """All ranks average in place of step 3's windows, and parameters stay where they are."""
    model, optimizer = wrapped(rank, communication=communication, topology="ring", bucket_bytes=200)
    places = [param.data_ptr() for param in model.parameters()]
    reference = Reference(world, "sgd")
    for number in range(STEPS):
        if number in (3, 4):
            optimizer.communication = "allreduce" if number == 3 else communication
        reference.differentiate(number)
        reference.combine("awc", next(matrices("full" if number == 3 else "ring", world)))
        lockstep(model, optimizer, rank, number)
        assert_at(model, reference.vectors()[rank])
    assert [param.data_ptr() for param in model.parameters()] == places, "parameters moved"
    optimizer.close()


@pytest.mark.parametrize("communication", ["win_put", "win_get"])
def test_windows_give_way_for_a_step(pool: harness.Pool, communication: str) -> None:
    pool.run(interrupted, communication)


def test_a_topology_is_that_of_the_next_puts(pool: harness.Pool) -> None:
    pool.run(turned_within, "win_put")


def scheduled_windows(rank: int, world: int, communication: str) -> list[float]:
    """Train with one peer a step, where no rank waits: all agree on a value between theirs."""
    import bluefog_pg

    model = nn.Linear(3, 1, bias=False).double()
    nn.init.constant_(model.weight, float(rank))
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0),
        model,
        communication,
        topology="one-peer-exp2",
    )
    for _ in range(80):
        model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        optimizer.step()
        time.sleep(0.002)
    inrank.barrier(rank, world)
    found = vector(model).tolist()
    optimizer.close()
    return found


@pytest.mark.parametrize("communication", ["win_put", "win_get"])
def test_windows_over_a_schedule(pool: harness.Pool, communication: str) -> None:
    found = torch.tensor(pool.run(scheduled_windows, communication))
    assert found.std(0).max() < 0.1
    assert 0 < found.min()
    assert found.max() < 3


def two_by_windows(_rank: int, _world: int) -> None:
    """Two models of one class have windows of their own, which end with them."""
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
    assert not bluefog_pg.torch.get_current_created_window_names()


@pytest.mark.slow
def test_two_wrappers_by_windows(pool: harness.Pool) -> None:
    pool.run(two_by_windows)


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


def survived(rank: int, world: int) -> None:
    """Rank 2 dies; the others train on, and do not wait for each other."""
    model, optimizer = wrapped(rank, communication="win_put", topology="full")
    dist.barrier()
    for number in range(3):
        step(model, optimizer, rank, number)
    inrank.mark("trains")
    inrank.gate("dies")
    if rank == 2:
        os._exit(1)
    inrank.gate("is dead")
    for group in optimizer.param_groups:
        group["lr"] = group["weight_decay"] = 0.0
    begun = time.monotonic()
    for number in range(3):
        step(model, optimizer, rank, number)
    for turn in range(2):  # What others put before the first turn is gone in the second one.
        with torch.no_grad():
            for param in model.parameters():
                param.fill_(1.0)
        inrank.mark(f"filled {turn}")
        for other in (0, 1, 3):
            inrank.await_file(f"at.filled {turn}.{other}")
        step(model, optimizer, rank)
        inrank.mark(f"stepped {turn}")
        for other in (0, 1, 3):
            inrank.await_file(f"at.stepped {turn}.{other}")
    took = time.monotonic() - begun
    optimizer.close()
    assert took < harness.at_most(10), f"{took} s"
    assert_at(model, 1.0, within=1e-9)  # The dead rank's parameters count no more.


@pytest.mark.slow
def test_training_by_windows_goes_on_when_a_rank_dies() -> None:
    with harness.Ranks(4) as ranks:
        ranks.start(survived, world=4, store="store")
        for rank in range(4):
            ranks.at("trains", rank)
        ranks.open("dies")
        ranks.procs[2].wait(10 * harness.SLOW)
        ranks.open("is dead")
        ranks.values(dead={2})
