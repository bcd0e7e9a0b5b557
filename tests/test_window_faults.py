"""Windows of ranks that are killed: with the mutex, in the middle of a put, at any instant."""

from __future__ import annotations

import contextlib
import time
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.distributed as dist

import harness
import hosts
import inrank
import test_windows as windows
from harness import Ranks

pytestmark = harness.only_bluefog

on_one_host_and_several = pytest.mark.parametrize(
    "is_apart", [False, True], ids=["one host", "hosts"]
)


def machines(n: int, is_apart: bool) -> AbstractContextManager[list[str]]:
    """A host for each rank, or none: all on this one."""
    return hosts.network(n) if is_apart else contextlib.nullcontext([])


def killed_with_the_mutex(rank: int, world: int) -> float | None:
    """Rank 1 dies while it holds the mutex of its slot in rank 0."""
    bf = windows.ring()
    window = bf.Window(torch.zeros(4), "w", zero_init=True)
    dist.barrier()
    if rank == 1:
        window.put(torch.ones(4))
        with window.mutex():
            inrank.mark("holds")
            time.sleep(60)
    inrank.gate("killed")
    begun = time.monotonic()
    window.update(self_weight=1.0, neighbor_weights={1: 1.0}, require_mutex=True)
    error = inrank.catch(window.put)
    took = time.monotonic() - begun
    harness.raised(error, "PeerFailed", ranks=[1])
    return took if window.tensor.eq(1).all() else None


@on_one_host_and_several
def test_who_dies_lets_go_of_the_mutex(is_apart: bool) -> None:
    with machines(2, is_apart) as names, Ranks(2, hosts=names) as ranks:
        ranks.start(killed_with_the_mutex, world=2, store="s")
        ranks.at("holds", 1)
        ranks.kill(1)
        ranks.open("killed")
        took = ranks.values(dead={1})[0]
        assert took is not None
        assert took < harness.WITHIN


def dropping(rank: int, world: int) -> list[Any]:
    """Rank 2 dies; the others go on without it, and count."""
    import bluefog_pg as bf

    bf.set_topology(bf.topology_util.FullyConnectedGraph(world))
    window = bf.Window(torch.ones(4), "w", zero_init=True, on_peer_failure="drop")
    dist.barrier()
    inrank.mark("ready")
    inrank.gate("killed")
    time.sleep(harness.WITHIN)
    for _ in range(3):
        window.accumulate()
        window.accumulate(require_mutex=True)
        window.get(src_weights=[2])
    inrank.meet("added", world - 1)
    sent = {to: it.dropped for to, it in window.sent().items()}
    return [sent, window.read(1 - rank).tolist()]


@on_one_host_and_several
def test_what_is_for_the_dead_is_dropped_and_counted(is_apart: bool) -> None:
    with machines(3, is_apart) as names, Ranks(3, hosts=names) as ranks:
        ranks.start(dropping, world=3, store="s")
        ranks.at("ready")
        ranks.kill(2)
        ranks.open("killed")
        told = ranks.values(dead={2})
    for rank in range(2):
        assert told[rank] == [{1 - rank: 0, 2: 9}, [6.0] * 4]


def adding_until_killed(rank: int, world: int, n: int) -> list[Any] | None:
    """Ranks 1 and 2 add to rank 0 and to each other; rank 2 is killed at any instant."""
    import bluefog_pg as bf

    bf.set_topology(bf.topology_util.FullyConnectedGraph(world))
    x = torch.zeros(n, dtype=torch.float64)
    window = bf.Window(x, "w", zero_init=True)
    one = torch.ones_like(x)
    dist.barrier()
    inrank.mark("begins")
    sent, errors = 0, []
    while not (inrank.directory() / "gate.killed").exists():
        if rank == 0:
            window.update_then_collect(require_mutex=False)
        elif error := inrank.catch(window.accumulate, one, require_mutex=sent % 2 == 0):
            errors.append(error)
        sent += 1
    return [sent, errors, x.eq(x[0]).all().item()]


@pytest.mark.parametrize("n", [1000, 1 << 18])
@pytest.mark.parametrize(
    ("is_apart", "moment"), [(False, 0.05), (False, 0.11), (False, 0.23), (True, 0.15)]
)
def test_a_killed_writer_leaves_slots_whole(n: int, is_apart: bool, moment: float) -> None:
    with machines(3, is_apart) as names, Ranks(3, hosts=names) as ranks:
        ranks.start(adding_until_killed, n, world=3, store="s")
        for rank in range(3):
            ranks.at("begins", rank)
        time.sleep(moment)
        ranks.kill(2)
        time.sleep(0.3)
        ranks.open("killed")
        told = ranks.values(dead={2})
    for _, errors, is_whole in told.values():
        assert is_whole
        for error in errors:
            harness.raised(error, "PeerFailed", ranks=[2])
