"""Updates that collect keep pace with their sources, so that push-sum ends at the mean."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, hosts, inrank, windows

PACE = 0.005  # kPace in WindowBluefogCalls.cpp


def push_sum(rank: int, world: int, late: int) -> float:
    """BlueFog's first example, in which one rank begins when others could have ended."""
    import bluefog_pg.torch as bf

    bf.init(bf.PowerTwoRingGraph)
    out = bf.out_neighbor_ranks()
    share = 1.0 / (len(out) + 1)
    x = torch.tensor([float(rank), 1.0])
    bf.win_create(x, name="x", zero_init=True)
    if rank == late:
        time.sleep(0.05)
    for _ in range(100):
        bf.win_accumulate(x, name="x", dst_weights=dict.fromkeys(out, share), require_mutex=True)
        x.mul_(share)
        bf.win_sync_then_collect(name="x")
    bf.barrier()
    bf.win_sync_then_collect(name="x")
    bf.win_free()
    return float(x[0] / x[1])


@pytest.mark.mpi
@pytest.mark.parametrize("world", [2, 4, 8])
@pytest.mark.parametrize("late", [0, 1, -1])
def test_push_sum_ends_at_the_mean(world: int, late: int) -> None:
    for mean in harness.run_ranks(push_sum, world, late):
        assert mean == pytest.approx((world - 1) / 2, abs=1e-3)


def test_push_sum_between_hosts() -> None:
    with hosts.network(2) as names:
        for mean in harness.run_ranks(push_sum, 4, 1, hosts=names):
            assert mean == pytest.approx(1.5, abs=1e-3)


def paced(rank: int, world: int) -> dict[str, float]:
    """The seconds that rank 0 takes for twenty updates, while rank 1 sends nothing."""
    window = windows.ring().Window(torch.ones(4), "w", zero_init=True)
    took = {}

    def take(what: str, **options: Any) -> None:
        begun = time.monotonic()
        for _ in range(20):
            window.update(self_weight=1.0, neighbor_weights={1: 1.0}, **options)
        took[what] = time.monotonic() - begun

    if rank == 0:
        take("averages")
        take("collects", reset=True)
        with window.mutex(for_self=True):
            take("holds the mutex", reset=True)
    dist.barrier()
    if rank == 1:
        inrank.mark("silent")
        time.sleep(60)
    inrank.gate("killed")
    while not window.states()[1].has_ended:
        time.sleep(0.001)
    take("the source is dead", reset=True)
    return took


def test_who_waits_how_long() -> None:
    with harness.Ranks(2) as ranks:
        ranks.start(paced, world=2, store="s")
        ranks.at("silent", 1)
        ranks.kill(1)
        ranks.open("killed")
        took = ranks.values(dead={1})[0]
        assert 20 * PACE <= took.pop("collects") < harness.at_most(20 * 2 * PACE)
        for what, seconds in took.items():
            assert seconds < harness.at_most(10 * PACE), what


def awaiting(rank: int, world: int) -> None:
    """Rank 0 waits for any of two sources, of which rank 1 sends at last."""
    window = windows.ring().Window(torch.ones(4), "w", zero_init=True)
    dist.barrier()
    if rank == 0:
        begun = time.monotonic()
        for _ in range(20):
            window.await_news()
        assert time.monotonic() - begun >= 20 * PACE
    dist.barrier()
    if rank == 1:
        window.put(dst_weights=[0])
    dist.barrier()
    if rank == 0:
        begun = time.monotonic()
        for _ in range(20):
            window.await_news()
        assert time.monotonic() - begun < harness.at_most(10 * PACE)
    dist.barrier()
    window.free()


def test_news_of_any_source_end_a_wait(pool: harness.Pool) -> None:
    pool.run(awaiting, world=3)


def vanishing(rank: int, world: int) -> list[str]:
    import bluefog_pg.torch as bf

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("bluefog_pg").addHandler(handler)
    bf.init(bf.RingGraph)
    bf.turn_on_win_ops_with_associated_p()
    x = torch.ones(2, dtype=torch.float64)
    bf.win_create(x, "x", zero_init=True)
    if rank == 0:
        for _ in range(120):
            bf.win_accumulate(x, "x", self_weight=0.5, dst_weights={1: 0.5})
            bf.win_update_then_collect("x")
    bf.turn_off_win_ops_with_associated_p()
    bf.barrier()
    bf.win_free()
    return told


def test_a_p_that_vanishes_is_told_of_once(pool: harness.Pool) -> None:
    told = pool.run(vanishing, world=2)
    assert len(told[0]) == 1
    assert "rank 0/2 win_update 'x'" in told[0][0]
    assert "p is" in told[0][0]
    assert told[1] == []
