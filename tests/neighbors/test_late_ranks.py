"""Ranks come late, or not at all: who waited hears it in time, and later calls are right."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.operations import extremes, group_of_machines

WORLD = 3
LARGE = 1 << 19


def late_for_its_machine(rank: int, world: int) -> list[Any]:
    """Rank 1 comes too late to where the ranks of a machine make their part of the group."""
    from bluefog_pg import collectives

    average = partial(collectives.allreduce, is_hierarchical_local=True)
    with group_of_machines(2, 2.0 * harness.SLOW) as group:
        dist.barrier(group)
        if rank == 1:
            time.sleep(3.0 * harness.SLOW)
        xs = (torch.full((4,), 10.0 * step + rank) for step in range(4))
        told = [inrank.outcome(extremes, partial(average, group=group), x) for x in xs]
        dist.barrier()
    return told


def test_a_rank_that_is_late_for_its_machine(pool: harness.Pool) -> None:
    *apart, third, fourth = pool.run(late_for_its_machine, world=4, timeout=60)
    for (first, *later), kind in zip(apart, ["CollectiveTimeout", "PeerFailed"], strict=True):
        harness.raised(first, kind)
        for error in later:
            harness.raised(error, "DistBackendError", text="make a new group")
    assert third == fourth == [(10.0 * step + 2.5,) * 2 for step in range(4)]


def late_among_names(rank: int, world: int) -> list[Any]:
    """Ranks use names in different orders; then one is late for a call, and all go on."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=2.0 * harness.SLOW))
    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world), group=group)
    told = list[Any]()
    for step in range(5):
        if step == 1 and rank == 0:
            time.sleep(3.0 * harness.SLOW)
        works = {
            name: bluefog_pg.neighbor_allreduce(
                torch.full((4,), 10.0 * step + rank), name=name, group=group, async_op=True
            )
            for name in ("ab" if (rank + step) % 2 else "ba")
        }
        for name in "ab":
            error = inrank.catch(works[name].wait)
            told.append(error or works[name].result()[0].tolist())
    dist.barrier()
    dist.destroy_process_group(group)
    return told


def test_names_in_another_order_and_a_late_rank(pool: harness.Pool) -> None:
    for rank, told in enumerate(pool.run(late_among_names, world=2)):
        late = told[2:4]
        right = [[10.0 * step + 0.5] * 4 for step in range(5) for _ in "ab"]
        assert told[:2] + told[4:] == right[:2] + right[4:]
        if rank:
            for error in late:
                harness.raised(error, "CollectiveTimeout", ranks=[0])
        else:
            assert late == right[2:4]  # These are what the other one has sent.


def late_after_pairs(rank: int, world: int, n: int, late: int) -> list[Any]:
    """Ranks 0 and 1 have made one more call when a rank is late for a call of all."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=2.0 * harness.SLOW))
    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world), group=group)
    if rank < 2:
        bluefog_pg.pair_gossip(torch.ones(n), 1 - rank, group=group)
    dist.barrier()
    told = list[Any]()
    for step in range(5):
        if step == 0 and rank == late:
            time.sleep(3.0 * harness.SLOW)
        x = torch.full((n,), 10.0 * step + rank)
        told.append(
            inrank.outcome(extremes, partial(bluefog_pg.neighbor_allreduce, group=group), x)
        )
        if step == 0:
            dist.barrier()
    dist.destroy_process_group(group)
    return told


@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize("n", [4, 1_000_000])
def test_unequal_numbers_of_calls_and_a_late_rank(pool: harness.Pool, n: int, late: int) -> None:
    for rank, (first, *later) in enumerate(pool.run(late_after_pairs, n, late, world=WORLD)):
        if rank != late:
            harness.raised(first, "CollectiveTimeout", ranks=[late])
        assert later == [(10.0 * step + 1.0, 10.0 * step + 1.0) for step in range(1, 5)]


def nobody_comes(rank: int, world: int, limit: float) -> list[Any]:
    group = dist.new_group(timeout=timedelta(seconds=limit))
    dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()
    posted = error = None
    if rank == 0:  # One call is waited for, and nobody waits for the other.
        posted = dist.all_reduce(torch.ones(4096), group=group, async_op=True)
        began = time.monotonic()
        while not posted.is_completed() and time.monotonic() < began + limit + 5:
            time.sleep(0.01)
        error = [time.monotonic() - began, inrank.catch(posted.wait)]
    dist.barrier()  # The world lives on.
    dist.destroy_process_group(group)
    return [error]


def test_a_missing_rank_is_named_at_the_limit(pool: harness.Pool) -> None:
    took, error = pool.run(nobody_comes, 1.5, world=WORLD)[0][0]
    assert 1.4 < took < harness.at_most(2.5)
    harness.raised(error, "CollectiveTimeout", ranks=[1, 2])
    want = r"\[bluefog\] rank 0 \(0/3 of group \S+\) allreduce #\d+ (SUM )?float32\[4096\]: "
    want += r"timeout after 1\.5 s; nothing from ranks 1, 2"
    assert re.match(want, error.text), error.text


def shorter(rank: int, world: int) -> inrank.Raised | None:
    """set_timeout on a living group counts for what is posted later; a receive keeps to it, too."""
    group = dist.new_group([0, 1])
    error = None
    if rank == 0:
        group.set_timeout(timedelta(seconds=0.7))
        error = inrank.catch(dist.recv, torch.ones(3), 1, group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    return error


def test_set_timeout(pool: harness.Pool) -> None:
    error = harness.raised(pool.run(shorter, world=2)[0], "CollectiveTimeout", ranks=[1])
    assert 0.6 < error.took() < harness.at_most(1.7)


def one_sided(rank: int, world: int) -> inrank.Raised | None:
    """Rank 0's dynamic call expects something from a rank which does not send."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=1))
    error = None
    if rank == 0:
        weights = {"self_weight": 0.5, "src_weights": {1: 0.5}}
        error = inrank.catch(
            bluefog_pg.neighbor_allreduce, torch.ones(3), **weights, dst_weights=[], group=group
        )
    dist.barrier()
    dist.destroy_process_group(group)
    return error


def test_a_dynamic_neighbor_that_does_not_send(pool: harness.Pool) -> None:
    error = harness.raised(pool.run(one_sided, world=2)[0], "CollectiveTimeout", ranks=[1])
    assert 0.9 < error.took() < harness.at_most(2)


def too_late(rank: int, world: int, n: int) -> list[Any]:
    """A message for a receive that has given up is not given to the next one."""
    group = dist.new_group([0, 1], timeout=timedelta(seconds=harness.at_most(0.6)))
    told: list[Any] = []
    if rank == 0:
        told.append(inrank.catch(dist.recv, torch.ones(n), 1, group=group))
    dist.barrier()
    if rank == 0:
        t = torch.ones(n)
        dist.recv(t, 1, group=group)
        told.append([t[0].item(), t[-1].item()])
    else:
        told.append(inrank.catch(dist.send, torch.ones(n) * 5, 0, group=group))
        told.append(inrank.catch(dist.send, torch.ones(n) * 7, 0, group=group))
    dist.barrier()
    dist.destroy_process_group(group)
    return told


@pytest.mark.parametrize("n", [3, LARGE])
def test_what_comes_too_late_goes_to_nobody(pool: harness.Pool, n: int) -> None:
    (error, got), (first, second) = pool.run(too_late, n, world=2)
    harness.raised(error, "CollectiveTimeout", ranks=[1])
    assert got == [7.0, 7.0] and second is None
    if n == LARGE:  # A large message needs its receiver, and says that it is gone, and for whom.
        harness.raised(first, "CollectiveTimeout", ranks=[1], text="rank 0 had already given up")
