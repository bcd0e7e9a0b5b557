"""Many threads use many groups: nothing locks up, and nothing is mixed up in any value."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank

THREADS = GROUPS = 8
PENDING = 24  # the most calls of one thread that are pending
Check = Callable[[], None]


def started(rank: int, world: int, group: Any, number: int, k: int) -> Check:
    """Issue the k-th call of this group. The returned check waits, and looks at every value."""
    n = 40_000 if k % 100 == 99 else k * 37 % 700
    mark = float(number * 10_000 + k)  # No other call has this mark.
    mine = torch.full((n,), mark + rank)
    total = world * mark + world * (world - 1) / 2

    def expect(work: dist.Work | None, out: torch.Tensor, want: torch.Tensor | float) -> Check:
        def check() -> None:
            assert work is not None
            work.wait()
            right = bool((out == want).all())
            assert right, f"call {k} of group {number}: {out[:3]}, not {want}"

        return check

    each = torch.tensor([mark + r for r in range(world)]).repeat_interleave(n)
    match k % 5:
        case 0:
            return expect(dist.all_reduce(mine, group=group, async_op=True), mine, total)
        case 1:
            root = k % world
            work = dist.broadcast(mine, group=group, group_src=root, async_op=True)
            return expect(work, mine, mark + root)
        case 2:
            out = torch.empty(n * world)
            work = dist.all_gather_into_tensor(out, mine, group, async_op=True)
            return expect(work, out, each)
        case 3:
            out, whole = torch.empty(n), mine.repeat(world)
            work = dist.reduce_scatter_tensor(out, whole, group=group, async_op=True)
            return expect(work, out, total)
        case _:
            out, whole = torch.empty(n * world), mine.repeat(world)
            work = dist.all_to_all_single(out, whole, group=group, async_op=True)
            return expect(work, out, each)


def wait_in_any_order(issue: Callable[[], Check | None], rng: random.Random) -> None:
    """Issue until there is nothing more to issue; wait for some of what is pending, at random."""
    pending: list[Check] = []
    while (check := issue()) is not None:
        pending.append(check)
        while len(pending) > rng.randrange(PENDING):
            pending.pop(rng.randrange(len(pending)))()
    for check in reversed(pending):
        check()


def a_group_each(rank: int, world: int, calls: int) -> None:
    groups = [dist.new_group() for _ in range(GROUPS)]

    def run(i: int) -> None:
        turns = iter(range(calls))

        def issue() -> Check | None:
            k = next(turns, None)
            return None if k is None else started(rank, world, groups[i], i, k)

        wait_in_any_order(issue, random.Random(f"{rank} {i}"))

    bad = inrank.in_threads(THREADS, run, 40)
    for group in groups:
        dist.destroy_process_group(group)
    assert not bad, bad


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_eight_threads_with_a_group_each(pool: harness.Pool, world: int) -> None:
    pool.run(a_group_each, 500, world=world)


def roaming(rank: int, world: int, count: int, calls: int) -> None:
    """Any thread issues any group's next call, as a lock per group fixes the order on this rank.

    Calls are dealt out in one order, but whoever has drawn one may be overtaken by others. That
    order is what keeps the program itself from locking up.
    """
    groups = [dist.new_group() for _ in range(count)]
    deal, drawn = threading.Lock(), iter(range(count * calls))
    turns, issued = [threading.Condition() for _ in groups], [0] * count

    def run(i: int) -> None:
        rng = random.Random(f"{rank} {i}")

        def issue() -> Check | None:
            with deal:
                ticket = next(drawn, None)
            if ticket is None:
                return None
            k, number = divmod(ticket, count)
            with turns[number]:
                assert turns[number].wait_for(lambda: issued[number] == k, 30)
                check = started(rank, world, groups[number], number, k)
                issued[number] += 1
                turns[number].notify_all()
            return check

        wait_in_any_order(issue, rng)

    bad = inrank.in_threads(THREADS, run, 40)
    for group in groups:
        dist.destroy_process_group(group)
    assert not bad, bad


@pytest.mark.slow
@pytest.mark.parametrize(("world", "count", "calls"), [(2, 8, 2000), (4, 1, 1000), (2, 1, 1000)])
def test_threads_share_groups(pool: harness.Pool, world: int, count: int, calls: int) -> None:
    pool.run(roaming, count, calls, world=world)


def receives_pend(rank: int, world: int, calls: int) -> None:
    """Receives are due from the start, some waited for; collectives run, and then come the
    sends.
    """
    own = [dist.new_group() for _ in range(3)]
    peer, sizes = (rank + 1) % world, [1, 3000, 300_000] * 6
    source = (rank - 1) % world
    got = [torch.zeros(n) for n in sizes]
    works = [dist.irecv(t, source, tag=i) for i, t in enumerate(got)]
    early: list[bool] = []
    calm = threading.Barrier(4)

    def run(i: int) -> None:
        if i < 3:  # Each of three threads waits for a third of the receives, the last ones first.
            for j in reversed(range(i, len(works), 3)):
                works[j].wait()
                assert (got[j] == 100 * source + j).all(), f"message {j}: {got[j][:3]}"
            return
        group = [*own, dist.group.WORLD][i - 3]
        for k in range(calls):
            started(rank, world, group, i, k)()
        calm.wait(20)
        if i == 6:
            early.extend(w.is_completed() for w in works)
            dist.barrier()
            sent = [
                dist.isend(torch.full((n,), float(100 * rank + j)), peer, tag=j)
                for j, n in enumerate(sizes)
            ]
            for work in reversed(sent):
                work.wait()

    bad = inrank.in_threads(7, run, 30)
    for group in own:
        dist.destroy_process_group(group)
    assert not bad, bad
    assert early == [False] * 18, f"which receives ended early: {early}"


@pytest.mark.parametrize("world", [2, 4])
def test_receives_pend_while_collectives_run(pool: harness.Pool, world: int) -> None:
    pool.run(receives_pend, 150, world=world)


def crossed(rank: int, world: int, rounds: int) -> None:
    """Each thread has two groups.

    Ranks wait in one where others have begun the other one's call.
    """
    pairs = [(dist.new_group(), dist.new_group()) for _ in range(4)]

    def run(i: int) -> None:
        order = (0, 1) if (rank + i) % 2 else (1, 0)
        for k in range(rounds):
            first = started(rank, world, pairs[i][order[0]], 2 * i + order[0], k)
            second = started(rank, world, pairs[i][order[1]], 2 * i + order[1], k)
            for check in (second, first) if k % 3 else (first, second):
                check()
            # This one blocks, in the same order everywhere.
            t = torch.full((k * 211 % 900,), float(k + rank))
            dist.all_reduce(t, group=pairs[i][0])
            assert (t == world * k + world * (world - 1) / 2).all(), f"round {k}"

    bad = inrank.in_threads(4, run, 30)
    for group in sum(pairs, ()):
        dist.destroy_process_group(group)
    assert not bad, bad


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_groups_in_opposite_orders(pool: harness.Pool, world: int) -> None:
    pool.run(crossed, 200, world=world)
