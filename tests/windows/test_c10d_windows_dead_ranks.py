"""c10d's windows wait for no program, and go on without ranks that are stopped or killed."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import c10d_windows as windows
from tests.support import harness, inrank
from tests.support.harness import Ranks

pytestmark = [pytest.mark.mpi, windows.NEEDED]


def beside_one_that_stands(rank: int, world: int) -> float:
    """Rank 1 is stopped, and rank 0's puts and signals return all the same."""
    x = torch.zeros(1 << 16)
    window = windows.made(x)
    dist.barrier()
    inrank.mark("ready")
    if rank == 0:
        inrank.gate("stopped")
        begun = time.monotonic()
        for turn in range(100):
            window.put(torch.full_like(x, float(turn)), 1, 0, turn % 2 == 0).wait()
            window.signal(1, turn % 2 == 0).wait()
        took = time.monotonic() - begun
        inrank.mark("put")
    else:
        for _ in range(100):
            window.wait_signal(0, False)
        assert x.eq(99).all(), x
        took = 0.0
    window.tensor_deregister()
    return took


@windows.ON_ONE_HOST
def test_a_stopped_target_is_not_waited_for() -> None:
    with Ranks(2) as ranks:
        ranks.start(beside_one_that_stands, world=2, store="s")
        ranks.at("ready")
        ranks.stop(1)
        ranks.open("stopped")
        ranks.at("put", 0)
        ranks.cont(1)
        assert ranks.values()[0] < harness.at_most(1.0)


def beside_one_that_stands_elsewhere(rank: int, world: int) -> list[Any]:
    """Rank 1 is stopped on another host: what rank 0 asks of it ends at its own deadline."""
    from torch._C._distributed_c10d import PutOptions, SignalOptions

    x = torch.zeros(1 << 16)
    window = windows.made(x)
    dist.barrier()
    inrank.mark("ready")
    errors: list[Any] = []
    if rank == 0:
        inrank.gate("stopped")
        options = [PutOptions(), SignalOptions()]
        for option in options:
            option.timeout = timedelta(seconds=0.3)
        errors.append(inrank.catch(window.put, torch.ones_like(x), 1, 0, False, options[0]))
        errors.append(inrank.catch(window.signal, 1, False, options[1]))
        work = window.put(torch.ones(5), 1, 0, True, options[0])
        errors.append(inrank.catch(work.wait))
        inrank.mark("asked")
        inrank.gate("goes on")
        window.put(torch.full_like(x, 2.0), 1, 0, False)
        window.signal(1, False)
    else:
        inrank.gate("goes on")
        window.wait_signal(0, False)
        while x.eq(0).any():
            window.wait_signal(0, False)  # The signal that was late has come, too.
        assert x.eq(2).all(), x
    window.tensor_deregister()
    return errors


@pytest.mark.skipif(harness.TRANSPORT != "mpi", reason="a put on one host waits for nobody")
def test_a_stopped_target_on_another_host_is_waited_for_until_the_deadline() -> None:
    with Ranks(2) as ranks:
        ranks.start(beside_one_that_stands_elsewhere, world=2, store="s")
        ranks.at("ready")
        ranks.stop(1)
        ranks.open("stopped")
        ranks.at("asked", 0)
        ranks.cont(1)
        ranks.open("goes on")
        for error in ranks.values()[0]:
            harness.raised(error, "CollectiveTimeout", ranks=[1], text="timeout after 0.3 s")
            assert error.took() < harness.at_most(1.0)


def putting_until_killed(rank: int, world: int, n: int) -> Any:
    """All put to all; rank 2 is killed at any instant, and the others go on with each other."""
    x = torch.zeros(world, n)
    window = windows.made(x)
    ones = torch.ones(n)
    others = [peer for peer in range(world) if peer != rank]
    living = [peer for peer in others if peer != 2]
    dist.barrier()
    inrank.mark("begins")
    error = None
    while error is None:
        for peer in others:
            error = error or inrank.catch(window.put, ones, peer, rank * n, False)
            error = error or inrank.catch(window.signal, peer, False)
    heard = [inrank.catch(call, 2) for call in (
        lambda peer: window.put(ones, peer, 0, False),
        lambda peer: window.signal(peer, False),
    )]  # fmt: skip
    for peer in living:
        window.put(ones * 5, peer, rank * n, False)
        window.signal(peer, False)
    inrank.meet("went on", world - 1) if world == 3 else inrank.mark("went on")
    whole = [bool(x[peer].eq(5).all()) for peer in living]
    for peer in living:
        window.wait_signal(peer, False)
    ended = inrank.catch(window.tensor_deregister)
    return [error, *heard, ended, whole]


@pytest.mark.parametrize("n", [8, 1 << 20])
def test_the_living_go_on(n: int) -> None:
    with Ranks(3) as ranks:
        ranks.start(putting_until_killed, n, world=3, store="s")
        ranks.at("begins")
        time.sleep(0.05)
        killed = ranks.kill(2)
        for *errors, ended, whole in ranks.values(dead={2}).values():
            for error in errors:
                harness.raised(error, "PeerFailed", ranks=[2])
            assert errors[0].ended - killed < harness.WITHIN
            harness.raised(ended, "PeerFailed", ranks=[2])
            assert whole == [True]


def waiting_for_the_dead(rank: int, world: int) -> Any:
    """Rank 1 signals twice and is killed: rank 0 gets two signals and then an error."""
    window = windows.made(torch.zeros(1))
    if rank == 1:
        window.signal(0, False)
        window.signal(0, False)
    dist.barrier()
    inrank.mark("signaled")
    if rank == 1:
        time.sleep(60)
    window.wait_signal(1, False)
    begun = time.monotonic()
    first, second = (window.wait_signal(1, True) for _ in range(2))
    first.wait()
    inrank.mark("waits")
    sync = inrank.catch(window.wait_signal, 1, False)
    return [begun, sync, inrank.catch(second.wait), inrank.catch(window.wait_signal, 1, False)]


def test_a_wait_for_the_dead_ends() -> None:
    with Ranks(2) as ranks:
        ranks.start(waiting_for_the_dead, world=2, store="s")
        ranks.at("waits", 0)
        time.sleep(0.1)
        killed = ranks.kill(1)
        _, *errors = ranks.values(dead={1})[0]
        for error in errors:
            harness.raised(error, "PeerFailed", ranks=[1], text="rank 1 died or left the group")
        assert errors[0].ended - killed < harness.WITHIN


def left_in_order(rank: int, world: int) -> Any:
    """Rank 1 signals once and leaves the group."""
    window = windows.made(torch.zeros(1))
    if rank == 1:
        window.signal(0, False)
        dist.destroy_process_group()
        inrank.mark("left")
        return None
    window.wait_signal(1, False)
    return [
        inrank.catch(window.wait_signal, 1, False),
        inrank.catch(window.put, torch.zeros(1), 1, 0, False),
    ]


def test_who_has_left_is_as_the_dead() -> None:
    for error in harness.run_ranks(left_in_order, 2)[0]:
        harness.raised(error, "PeerFailed", ranks=[1])


def stopped_amid_a_put(rank: int, world: int, n: int) -> float:
    """Rank 0 is stopped amid a put; rank 1 drops the window meanwhile, and registers another."""
    x, fresh = torch.zeros(n), torch.zeros(n)
    window = windows.made(x)
    ones = torch.ones(n)
    dist.barrier()
    took = 0.0
    if rank == 0:
        inrank.mark("begins")
        while not inrank.catch(window.put, ones, 1, 0, False):
            pass
    else:
        inrank.gate("stopped")
        begun = time.monotonic()
        del window, x
        took = time.monotonic() - begun
        # The next tensor has its place by then, and waits for the other rank alone.
        threading.Timer(0.5, inrank.mark, ["moved"]).start()
    another = windows.made(fresh)
    dist.barrier()
    time.sleep(0.1)
    assert rank == 0 or not fresh.any(), "the put came after the end"
    another.tensor_deregister()
    return took


@windows.ON_ONE_HOST
def test_who_is_stopped_amid_a_put_harms_nobody() -> None:
    with Ranks(2) as ranks:
        ranks.start(stopped_amid_a_put, 1 << 24, world=2, store="s")
        ranks.at("begins", 0)
        time.sleep(0.2)
        ranks.stop(0)
        ranks.open("stopped")
        ranks.at("moved", 1)
        ranks.cont(0)
        assert ranks.values()[1] < harness.at_most(2.0)


def killed_at_any_instant(rank: int, world: int, turn: int) -> int:
    """Rank 2 is killed while all make, use and end windows; nobody hangs or crashes."""
    made = 0
    inrank.mark(f"begins {turn}")
    while True:
        x = torch.zeros(world, 5000)
        window: Any = None
        try:
            window = windows.made(x)
            for peer in range(world):
                window.put(torch.ones(5000), peer, rank * 5000, made % 2 == 0)
                window.signal(peer, False)
            for peer in range(world):
                window.wait_signal(peer, False)
                assert x[peer].eq(1).all()
            window.tensor_deregister()
        except dist.DistBackendError as error:
            assert getattr(error, "ranks", None) == [2], error
            return made
        made += 1


@pytest.mark.slow
def test_a_death_at_any_instant() -> None:
    for turn in range(6):
        with Ranks(3) as ranks:
            ranks.start(killed_at_any_instant, turn, world=3, store="s")
            ranks.at(f"begins {turn}")
            time.sleep(0.05 + int.from_bytes(os.urandom(1), "big") / 1000)
            ranks.kill(2)
            ranks.values(dead={2})
