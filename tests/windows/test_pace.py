"""Updates that collect keep pace with their sources, so that push-sum ends at the mean."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, hosts, inrank, windows

PACE = 0.005  # kPace in TensorWindowCalls.cpp, in seconds
CALLS = 300  # So many calls take 1.5 s where they wait.


def push_sum(rank: int, world: int, late: int | None) -> float:
    """Run BlueFog's first example, in which one rank begins when others could have ended."""
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


def push_sums(rank: int, world: int) -> list[float]:
    return [push_sum(rank, world, late) for late in (None, 0, 1)]


@pytest.mark.mpi
@pytest.mark.parametrize("world", [2, 4, 8])
def test_push_sum_ends_at_the_mean(world: int) -> None:
    for means in harness.run_ranks(push_sums, world):
        assert means == pytest.approx([(world - 1) / 2] * 3, abs=1e-3)


def test_push_sum_between_hosts() -> None:
    with hosts.network(2) as names:
        for mean in harness.run_ranks(push_sum, 4, 1, hosts=names):
            assert mean == pytest.approx(1.5, abs=1e-3)


def one_peer_with_p(rank: int, world: int) -> float:
    """Send half to another neighbor in each step, with its p, and return how far x / p ends off."""
    import bluefog_pg.torch as bf

    bf.init()
    bf.turn_on_win_ops_with_associated_p()
    out = bf.out_neighbor_ranks()
    x = torch.arange(1000, dtype=torch.float64) + rank
    bf.win_create(x, "x", zero_init=True)
    for step in range(200):
        dst_weights = {out[step % len(out)]: 0.5}
        bf.win_accumulate(x, "x", self_weight=0.5, dst_weights=dst_weights, require_mutex=True)
        bf.win_update_then_collect("x")
    bf.barrier()
    bf.win_update_then_collect("x")
    p = bf.win_associated_p("x")
    bf.turn_off_win_ops_with_associated_p()
    bf.win_free("x")
    want = torch.arange(1000) + (world - 1) / 2
    assert bf.allreduce(torch.tensor(p)).item() == pytest.approx(1.0)
    return float((x / p - want).abs().max())


def test_one_peer_push_sum_ends_at_the_mean(pool: harness.Pool) -> None:
    assert max(pool.run(one_peer_with_p)) < 1e-6


def push_diging(rank: int, world: int) -> float:
    """Solve least squares, of which each rank has a part, by push-sum over a window of x, y and p.

    Return how far the gradient of the whole ends from zero.
    """
    import bluefog_pg.torch as bf

    bf.init(bf.PowerTwoRingGraph)
    out, n, rate = bf.out_neighbor_ranks(), 4, 0.02
    share = 1.0 / (len(out) + 1)
    generator = torch.Generator().manual_seed(rank)
    a = torch.randn(20, n, dtype=torch.float64, generator=generator)
    b = torch.randn(20, dtype=torch.float64, generator=generator)

    def gradient(of: torch.Tensor) -> torch.Tensor:
        return a.T @ (a @ of - b) / len(b)

    w = torch.cat([torch.zeros(n), gradient(torch.zeros(n).double()), torch.ones(1)])
    before = w[n:-1].clone()
    bf.win_create(w, "w", zero_init=True)
    for step in range(1000):
        if step % 10 == 0:
            bf.barrier()
        w[:n] -= rate * w[n:-1]
        bf.win_accumulate(w, "w", dst_weights=dict.fromkeys(out, share), require_mutex=True)
        w.mul_(share)
        w = bf.win_sync_then_collect("w")
        now = gradient(w[:n] / w[-1])
        w[n:-1] += now - before
        before = now
    bf.barrier()
    w = bf.win_sync_then_collect("w")
    x = w[:n] / w[-1]
    bf.win_free("w")
    return float(bf.allreduce(gradient(x)).norm())


@pytest.mark.slow
def test_push_diging_by_windows_ends_at_the_solution(pool: harness.Pool) -> None:
    assert max(pool.run(push_diging)) < 1e-6


def paced(rank: int, world: int) -> dict[str, float]:
    """Return the seconds that rank 0 takes for so many updates, while rank 1 sends nothing."""
    window = windows.ring().Window(torch.ones(4), "w", zero_init=True)
    took = {}

    def take(what: str, **options: Any) -> None:
        begun = time.monotonic()
        for _ in range(CALLS):
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
        inrank.gate("never", 60)
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
        assert CALLS * PACE <= took.pop("collects") < harness.at_most(2 * CALLS * PACE)
        for what, seconds in took.items():
            assert seconds < CALLS * PACE / 2, what


def awaiting(rank: int, world: int) -> None:
    """Rank 0 waits for either of two sources, until rank 1 sends at last."""
    window = windows.ring().Window(torch.ones(4), "w", zero_init=True)
    dist.barrier()
    if rank == 0:
        begun = time.monotonic()
        for _ in range(CALLS):
            window.await_news()
        assert time.monotonic() - begun >= CALLS * PACE
    dist.barrier()
    if rank == 1:
        window.put(dst_weights=[0])
    dist.barrier()
    if rank == 0:
        begun = time.monotonic()
        for _ in range(CALLS):
            window.await_news()
        assert time.monotonic() - begun < CALLS * PACE / 2
    dist.barrier()
    window.free()


def test_news_of_any_source_end_a_wait(pool: harness.Pool) -> None:
    pool.run(awaiting, world=3)


def vanishing(rank: int, world: int) -> list[str]:
    import bluefog_pg.torch as bf

    bf.init(bf.RingGraph)
    bf.turn_on_win_ops_with_associated_p()
    x = torch.ones(2, dtype=torch.float64)
    bf.win_create(x, "x", zero_init=True)
    with inrank.logged() as told:
        for _ in range(120 if rank == 0 else 0):
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
