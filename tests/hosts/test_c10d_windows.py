"""Ranks put into c10d's windows of other hosts, and signals say when, also beside a dead rank."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import c10d_windows as windows
from tests.support import harness, hosts, inrank
from tests.support.c10d_windows import around
from tests.support.harness import WITHIN, Ranks

pytestmark = windows.NEEDED

LARGE = 3 << 20  # so many float64 are 24 MiB


@pytest.fixture(scope="module")
def pair() -> Iterator[list[str]]:
    with hosts.network(2) as names:
        yield names


def into_all(rank: int, world: int) -> None:
    """Each rank has its own place in the tensors of all, whose sizes differ."""
    x = torch.full((10 * world + rank,), -1, dtype=torch.int32)
    window = windows.made(x)
    peers = [peer for peer in range(world) if peer != rank]
    for turn in range(20):
        for peer in peers:
            row = torch.arange(10, dtype=torch.int32) + 100 * rank + turn
            last = torch.tensor([row[0] + 50], dtype=torch.int32)
            works = [
                window.put(row, peer, 10 * rank, turn % 2 == 0),
                window.put(last, peer, 10 * rank + 9, turn % 2 == 0),  # It overwrites the first.
                window.signal(peer, turn % 2 == 0),
            ]
            for work in works:
                work.wait()
        for peer in peers:
            window.wait_signal(peer, False)
            wanted = [100 * peer + turn + i for i in (*range(9), 50)]
            assert x[10 * peer : 10 * peer + 10].tolist() == wanted, (turn, peer, x)
        assert x[10 * rank : 10 * rank + 10].eq(-1).all(), x
        assert x[10 * world :].eq(-1).all(), x
        dist.barrier()
    error = inrank.catch(window.put, torch.ones_like(x[:11]), 1, 10 * world - 9, False)
    harness.raised(error, "ValueError", text=f"exceed the {10 * world + 1} elements")
    window.tensor_deregister()


def of_many_megabytes(rank: int, world: int) -> None:
    after, before = around(rank, world)
    x = torch.zeros(LARGE + 2, dtype=torch.float64)
    window = windows.made(x)
    values = torch.arange(LARGE, dtype=torch.float64)
    for turn, is_async in enumerate((False, True)):
        work = window.put(values + LARGE * (turn + rank), after, 1, is_async)
        window.signal(after, False)  # It comes after the put, which may still be under way.
        window.wait_signal(before, False)
        assert x[1:-1].equal(values + LARGE * (turn + before)), x
        assert x[0] == x[-1] == 0, x
        work.wait()
        dist.barrier()
    window.tensor_deregister()


def counted(rank: int, world: int) -> None:
    """Three signals end three waits, and a wait that has failed takes none."""
    other = (rank + 2) % world  # It is on the other host.
    window = windows.made(torch.zeros(1))
    error = inrank.catch(window.wait_signal, other, False, windows.within(0.1))
    harness.raised(error, "CollectiveTimeout", ranks=[other])
    dist.barrier()
    for turn in range(3):
        window.signal(other, turn == 1).wait()
    dist.barrier()
    first, second = (window.wait_signal(other, True) for _ in range(2))
    window.wait_signal(other, False)
    assert first.is_completed() and second.is_completed()
    error = inrank.catch(window.wait_signal, other, False, windows.within(0.1))
    harness.raised(error, "CollectiveTimeout", ranks=[other])
    dist.barrier()
    late = window.wait_signal(other, True)
    assert not late.is_completed()
    dist.barrier()
    window.signal(other, False)
    late.wait()
    window.tensor_deregister()


def mapped_here_only(rank: int, world: int) -> None:
    window = windows.made(torch.full((3,), float(rank)))
    for peer in range(world):
        if peer // 2 == rank // 2:
            assert windows.is_mapped(window, peer)
            assert window.map_remote_tensor(peer).tolist() == [peer] * 3
        else:
            assert window.get_attr(peer).access_type.name == "SEPARATE"
            error = inrank.catch(window.map_remote_tensor, peer)
            harness.raised(error, "RuntimeError", text=f"rank {peer} is on another host")
    dist.barrier()
    window.tensor_deregister()


@pytest.mark.parametrize(
    "body", [into_all, of_many_megabytes, counted, mapped_here_only], ids=lambda body: body.__name__
)
def test_over_two_hosts(pair: list[str], body: Any) -> None:
    with Ranks(4, hosts=pair, destroy=True) as ranks:
        ranks.start(body, world=4, store="s")
        ranks.values(60)
        assert set(ranks.leave().values()) == {0}


def beside_the_dead(rank: int, world: int) -> Any:
    """Rank 3 signals each other rank once and is killed; the others go on with each other."""
    x = torch.zeros(world)
    window = windows.made(x)
    if rank == 3:
        for peer in range(3):
            window.signal(peer, False)
    dist.barrier()
    inrank.mark("signaled")
    if rank == 3:
        time.sleep(60)
    window.wait_signal(3, False)
    work = window.wait_signal(3, True)
    inrank.mark("waits")
    errors = [
        inrank.catch(work.wait),
        inrank.catch(window.put, torch.ones(1), 3, 0, False),
        inrank.catch(window.signal, 3, False),
    ]
    for peer in range(3):
        window.put(torch.tensor([5.0 + rank]), peer, rank, False)
        window.signal(peer, False)
    for peer in range(3):
        window.wait_signal(peer, False)
    assert x.tolist() == [5, 6, 7, 0], x
    return [*errors, inrank.catch(window.tensor_deregister)]


def test_the_living_go_on(pair: list[str]) -> None:
    with Ranks(4, hosts=pair) as ranks:
        ranks.start(beside_the_dead, world=4, store="s")
        ranks.at("waits", 0, 1, 2)
        killed = ranks.kill(3)
        for errors in ranks.values(dead={3}).values():
            for error in errors:
                harness.raised(error, "PeerFailed", ranks=[3])
            assert errors[0].took(killed) < WITHIN
