"""All ranks hear from bluefog_pg.monitored_barrier who did not come, and the group lives on."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank

ONE = timedelta(seconds=1)


def all_come(rank: int, world: int) -> list[tuple[float, float]]:
    import bluefog_pg

    passages = []
    for late in range(world):
        if rank == late:
            time.sleep(0.2)
        came = time.monotonic()
        bluefog_pg.monitored_barrier(timeout=timedelta(seconds=20))
        passages.append((came, time.monotonic()))
    return passages


@pytest.mark.slow
def test_everybody_waits_for_everybody(pool: harness.Pool) -> None:
    for passages in zip(*pool.run(all_come), strict=True):
        last = max(came for came, _ in passages)
        assert all(last < left < last + harness.at_most(5) for _, left in passages), passages


def some_come_late(rank: int, world: int, wait_all: bool) -> tuple[inrank.Raised | None, float]:
    import bluefog_pg

    if rank >= 2:
        time.sleep(1.8)
    error = inrank.catch(lambda: bluefog_pg.monitored_barrier(timeout=ONE, wait_all_ranks=wait_all))
    dist.barrier()
    bluefog_pg.monitored_barrier(timeout=timedelta(seconds=20))
    x = torch.ones(3)
    dist.all_reduce(x)
    return error, x[0].item()


@pytest.mark.parametrize(
    ("wait_all", "who", "ranks"), [(False, "Rank 2", [2]), (True, "Ranks 2, 3", [2, 3])]
)
def test_those_who_come_late_are_named_by_all(
    pool: harness.Pool, wait_all: bool, who: str, ranks: list[int]
) -> None:
    for rank, (error, total) in enumerate(pool.run(some_come_late, wait_all)):
        text = f": {who} failed to pass monitoredBarrier in 1000 ms"
        error = harness.raised(error, "CollectiveTimeout", ranks=ranks, text=text)
        assert error.took() < harness.at_most(2 if rank < 2 else 0.5)
        assert total == 4.0


def rank_0_comes_late(rank: int, world: int) -> tuple[inrank.Raised | None, float]:
    import bluefog_pg

    if rank == 0:
        time.sleep(2.2)
    error = inrank.catch(lambda: bluefog_pg.monitored_barrier(timeout=ONE))
    dist.barrier()
    bluefog_pg.monitored_barrier(timeout=timedelta.max)
    x = torch.ones(3)
    dist.all_reduce(x)
    return error, x[0].item()


def test_rank_0_hears_that_it_comes_late(pool: harness.Pool) -> None:
    for rank, (error, total) in enumerate(pool.run(rank_0_comes_late)):
        error = harness.raised(error, "CollectiveTimeout", ranks=[0])
        assert error.took() < harness.at_most(2 if rank else 0.5)
        assert total == 4.0


def no_time(rank: int, world: int) -> inrank.Raised | None:
    import bluefog_pg

    return inrank.catch(lambda: bluefog_pg.monitored_barrier(timeout=timedelta(0)))


def test_without_time_it_fails_at_once(pool: harness.Pool) -> None:
    for error in pool.run(no_time):
        error = harness.raised(error, "CollectiveTimeout", text="0 ms leave no time")
        assert error.took() < harness.WITHIN
