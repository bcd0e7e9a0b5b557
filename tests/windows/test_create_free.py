"""Ranks make, fence and free a window together, or none of them does."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.windows import ring

pytestmark = [pytest.mark.mpi, pytest.mark.device]


def made_twice(rank: int, world: int) -> list[Any]:
    import bluefog_pg.torch as bf

    with inrank.logged() as logged:
        made = [bf.win_create(torch.ones(2), "twice") for _ in range(2)]
    bf.win_free("twice")
    return [*made, *logged]


def test_a_window_that_is_there_already_is_told_of(pool: harness.Pool) -> None:
    for rank, (*made, told) in enumerate(pool.run(made_twice)):
        assert made == [True, False]
        assert told.startswith(f"[bluefog] rank {rank}/4 win_create: there is a window 'twice'")


def crossed(rank: int, world: int) -> inrank.Raised | None:
    """Rank 0 makes a window where the others free one."""
    import bluefog_pg.torch as bf

    bf.win_create(torch.ones(2), "w")
    if rank == 0:
        return inrank.catch(bf.win_create, torch.ones(2), "z")
    return inrank.catch(bf.win_free, "w")


def test_calls_that_do_not_meet_name_themselves() -> None:
    for rank, error in enumerate(harness.run_ranks(crossed, 2)):
        named = f"rank {rank}/2 {'win_free' if rank else 'win_create'} '{'w' if rank else 'z'}': "
        harness.raised(error, "Mismatch", text=named)


def disagreeing(rank: int, world: int) -> list[Any]:
    """Ranks differ in shapes, types or names, or one cannot make its window; then all is well."""
    bf = ring()
    calls = [
        lambda: bf.Window(torch.zeros(2 + rank), "shapes"),
        lambda: bf.Window(torch.zeros(2, dtype=[torch.float32, torch.float64][rank]), "types"),
        lambda: bf.Window(torch.zeros(2), f"names {rank}"),
        lambda: bf.Window(torch.zeros(4, 4).t()[rank:] if rank else torch.zeros(4, 4), "one"),
    ]
    errors = [inrank.catch(call) for call in calls]
    window = bf.Window(torch.zeros(2), "shapes")
    window.free()
    return errors


def test_ranks_make_one_window_or_none(pool: harness.Pool) -> None:
    for rank, (*alike, one) in enumerate(pool.run(disagreeing, world=2)):
        for error in alike:
            harness.raised(error, "ValueError", text="do not make the same window")
        harness.raised(one, ["RuntimeError", "ValueError"][rank])


def failing_alone(rank: int, world: int) -> list[Any]:
    """All ranks are told at once of what only rank 0 cannot do, and the group goes on."""
    bf = ring()
    x = torch.zeros(4)
    policy = "ignore" if rank == 0 else "raise"
    neighbors: Any = 5 if rank == 0 else None
    parts = [x, x.double()] if rank == 0 else [x, x]
    errors = [
        inrank.catch(bf.Window, x, "w", on_peer_failure=policy),
        inrank.catch(bf.Window, x, "w", neighbors=neighbors),
        inrank.catch(bf.Window, parts, "w"),
        inrank.catch(bf.Window, x, "\ud800" if rank == 0 else "w"),
    ]
    window = bf.Window(x, "w")
    window.free()
    return errors


def test_one_rank_that_cannot_make_it_is_told_by_all(pool: harness.Pool) -> None:
    for rank, errors in enumerate(pool.run(failing_alone, world=2)):
        for error in errors:
            text = "win_create" if rank == 0 else "ranks [0] of the group could not make their part"
            harness.raised(error, "RuntimeError" if rank else "ValueError", text=text)


def meeting_another(rank: int, world: int) -> list[Any]:
    """Rank 0 frees or fences something else than rank 1, and neither happens."""
    bf = ring()
    a, b = (bf.Window(torch.zeros(4), name, zero_init=True) for name in "ab")
    mine, other = (a, b) if rank == 0 else (b, a)
    errors = [
        inrank.catch(mine.free),
        inrank.catch(a.free if rank == 0 else a.fence),
        inrank.catch(mine.fence),
    ]
    mine.put(torch.ones(4))
    other.put(torch.ones(4))
    a.fence()
    got = [window.read(1 - rank).tolist() for window in (a, b)]
    a.free()
    b.free()
    return [errors, got]


def test_ranks_free_and_fence_the_same_window(pool: harness.Pool) -> None:
    for errors, got in pool.run(meeting_another, world=2):
        for error in errors:
            harness.raised(error, "ValueError", text="of the group fence or free another window")
        assert got == [[1.0] * 4] * 2


def freed_under_a_thread(rank: int, world: int, n: int) -> None:
    """A thread of rank 0 puts for as long as it can; the next window has nothing of it."""
    import threading

    bf, bad = ring(), []
    ones = torch.ones(n)
    for _ in range(20):
        window = bf.Window(torch.zeros(n), "w", zero_init=True)
        dist.barrier()

        def put_while_it_is_there(window: Any = window) -> None:
            while not inrank.catch(window.put, ones):
                pass

        thread = threading.Thread(target=put_while_it_is_there)
        if rank == 0:
            thread.start()
            time.sleep(0.003)
        window.free()
        other = bf.Window(torch.zeros(n), "v", zero_init=True)
        time.sleep(0.005)
        if rank == 1 and other.read(0).any():
            bad.append(other.states()[0].changes)
        if rank == 0:
            thread.join()
        other.free()
    assert not bad, f"the next window has something of it, after so many changes: {bad}"


@pytest.mark.parametrize("n", [1000, 1 << 16])
def test_a_window_is_freed_when_no_thread_uses_it(pool: harness.Pool, n: int) -> None:
    pool.run(freed_under_a_thread, n, world=2)
