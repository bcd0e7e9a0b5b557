"""Windows over two hosts serve what the other host asks while their program computes."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, hosts, inrank, windows
from tests.support.harness import Ranks

pytestmark = pytest.mark.device


def all_of_it(rank: int, world: int) -> list[Any]:
    """Do what one host's ranks do in a ring that crosses between the hosts twice."""
    told = [
        windows.added_and_fetched(rank, world),
        windows.push_sum(rank, world),
        windows.bad_calls(rank, world),
        windows.random_calls(rank, world, 1, 300),
    ]
    windows.put_and_updated(rank, world)
    return told


@pytest.mark.slow
def test_windows_over_two_hosts() -> None:
    with hosts.network(2) as pair, Ranks(4, hosts=pair, destroy=True) as ranks:
        ranks.start(all_of_it, world=4, store="s")
        told = ranks.values(90)
        assert set(ranks.leave().values()) == {0}
    for rank, (added, summed, refused, _) in told.items():
        near = windows.near(rank, 4)
        assert added[1] == dict.fromkeys(near, 2)
        assert added[-1] == [50.0 * other for other in near]
        assert summed[2:] == [1.0, pytest.approx(1.5, abs=1e-6)]
        assert all(error is not None for error in refused.values())
    histories = [history for *_, history in told.values()]
    assert sum(sent for sent, _ in histories) == sum(came for _, came in histories)
    assert sum(p for _, (_, p, _, _), _, _ in told.values()) == pytest.approx(4, abs=1e-9)


def into_a_held_gil(rank: int, world: int, door: str) -> list[float]:
    """Rank 1 sits in C code with the GIL until rank 0 has put into it, and fetched from it."""
    bf = windows.ring()
    x = torch.full((1 << 18,), float(rank))
    window = bf.Window(x, "w", zero_init=True)
    dist.barrier()
    if rank == 1:
        os.close(ctypes.PyDLL(None).open(door.encode(), os.O_RDONLY))
    else:
        time.sleep(0.1)  # Rank 1 sits there by then.
        window.accumulate(torch.ones_like(x))
        window.accumulate(torch.ones_like(x), require_mutex=True)
        window.get()
        with open(door, "w"):
            pass
    dist.barrier()
    seen = window.read(1 - rank)
    window.free()
    return seen.unique().tolist()


def test_a_rank_that_holds_its_gil_is_not_waited_for(tmp_path: Path) -> None:
    door = tmp_path / "door"
    os.mkfifo(door)
    with hosts.network(2) as pair, Ranks(2, hosts=pair) as ranks:
        ranks.start(into_a_held_gil, str(door), world=2, store="s")
        assert ranks.values() == {0: [1.0], 1: [2.0]}


def begun_and_waited_for(rank: int, world: int) -> list[Any]:
    """Asynchronous calls let the tensor change at once, and keep their order; a fence ends all."""
    bf = windows.ring()
    bf.torch.win_create(torch.zeros(1 << 19), "w", zero_init=True)
    x = torch.ones(1 << 19)
    dist.barrier()
    polled = []
    if rank == 0:
        handles = [bf.torch.win_put_nonblocking(x, "w", self_weight=2.0) for _ in range(4)]
        handles.append(bf.torch.win_accumulate_nonblocking(x, "w"))
        polled = [bf.torch.win_poll(handle) for handle in handles]
        x.zero_()
        for handle in handles[:3]:
            bf.torch.win_wait(handle)
    bf.torch.win_fence("w")
    polled += [bf.torch.win_poll(handle) for handle in handles[3:]] if rank == 0 else []
    got = bf.torch.win_read_neighbor("w", 1 - rank).unique().tolist()
    fetched = bf.torch.win_get_nonblocking("w")
    bf.torch.win_wait(fetched)
    bf.torch.win_free("w")
    return [polled, got]


def test_asynchronous_calls() -> None:
    with hosts.network(2, "1gbit") as pair, Ranks(2, hosts=pair) as ranks:
        ranks.start(begun_and_waited_for, world=2, store="s")
        (polled, _), (_, got) = ranks.values().values()
    assert not all(polled[:5])
    assert polled[5:] == [True, True]
    assert got == [8.0 + 16.0]


def to_one_that_stands(rank: int, world: int, then: str, factor: float) -> list[Any]:
    """Put while rank 1 is stopped, and make another call when it goes on."""
    bf = windows.ring()
    x = torch.ones(1 << 20)
    window = bf.Window(x.clone(), "w", zero_init=True)
    dist.barrier()
    inrank.mark("begins")
    error = None
    if rank == 0:
        inrank.gate("stopped")
        error = inrank.catch(window.put, x)
        inrank.mark("late")
        inrank.gate("again")
        getattr(window, then)(factor * x)
    inrank.meet("put", world)
    return [error, window.read(1 - rank).unique().tolist()]


@pytest.mark.slow
def test_one_that_stands_is_late_and_then_goes_on() -> None:
    limit = harness.at_most(2)
    with hosts.network(2) as pair, Ranks(2, hosts=pair) as ranks:
        ranks.start(to_one_that_stands, "put", 3.0, world=2, store="s", timeout=limit)
        ranks.at("begins")
        ranks.stop(1)
        ranks.open("stopped")
        ranks.at("late", 0)
        ranks.cont(1)
        ranks.open("again")
        (error, _), (_, seen) = ranks.values().values()
    text = f"win_put 'w': timeout after {limit:.1f} s"
    harness.raised(error, "CollectiveTimeout", ranks=[1], text=text)
    assert seen == [3.0]


def freed_while_under_way(rank: int, world: int) -> list[Any]:
    bf = windows.ring()
    x = torch.zeros(1 << 20)
    bf.torch.win_create(x, "w", zero_init=True)
    dist.barrier()
    handle = bf.torch.win_put_nonblocking(torch.ones(1 << 20), "w")
    early = bf.torch.win_poll(handle)
    bf.torch.win_free("w")
    late = bf.torch.win_poll(handle)
    waited = bf.torch.win_wait(handle)
    bf.torch.win_create(x, "w", zero_init=True)  # This is another window of the same name.
    empty = bf.torch.win_read_neighbor("w", 1 - rank).count_nonzero().item()
    bf.torch.win_free("w")
    return [early, late, waited, empty]


def test_a_window_is_freed_when_what_is_under_way_has_ended() -> None:
    with hosts.network(2, "1gbit") as pair, Ranks(2, hosts=pair) as ranks:
        ranks.start(freed_while_under_way, world=2, store="s")
        assert ranks.values() == {rank: [False, True, True, 0] for rank in range(2)}


def test_an_interrupted_put_arrives_once_and_in_order() -> None:
    """Ctrl-C ends the wait. What was put arrives later, before the next put."""
    with hosts.network(2) as pair, Ranks(2, hosts=pair) as ranks:
        ranks.start(to_one_that_stands, "accumulate", 1.0, world=2, store="s")
        ranks.at("begins")
        ranks.stop(1)
        ranks.open("stopped")
        time.sleep(0.5)
        since = ranks.interrupt(0)
        ranks.at("late", 0)
        ranks.cont(1)
        ranks.open("again")
        (error, _), (_, seen) = ranks.values().values()
    harness.raised(error, "KeyboardInterrupt")
    assert error.took(since) < harness.at_most(1.5)
    assert seen == [2.0]
