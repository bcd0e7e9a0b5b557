"""Windows go on when a rank is killed with the mutex, amid a put, or at any instant."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, hosts, inrank, windows
from tests.support.harness import Ranks

pytestmark = [pytest.mark.mpi, pytest.mark.device]

on_one_host_and_several = pytest.mark.parametrize(
    "is_apart", [False, True], ids=["one host", "hosts"]
)


def machines(n: int, is_apart: bool) -> AbstractContextManager[list[str]]:
    """Return a host for each rank, or none, where all are on this one."""
    return hosts.network(n) if is_apart else contextlib.nullcontext([])


def killed_with_the_mutex(rank: int, world: int) -> float:
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
    assert window.tensor.eq(1).all(), window.tensor
    return took


@on_one_host_and_several
def test_who_dies_lets_go_of_the_mutex(is_apart: bool) -> None:
    with machines(2, is_apart) as names, Ranks(2, hosts=names) as ranks:
        ranks.start(killed_with_the_mutex, world=2, store="s")
        ranks.at("holds", 1)
        ranks.kill(1)
        ranks.open("killed")
        assert ranks.values(dead={1})[0] < harness.WITHIN


def outliving(world: int, value: float, on_peer_failure: str = "raise") -> Any:
    """Return a window whose rank 2 has died."""
    import bluefog_pg as bf

    bf.set_topology(bf.topology_util.FullyConnectedGraph(world))
    x = torch.full((4,), value)
    window = bf.Window(x, "w", zero_init=True, on_peer_failure=on_peer_failure)
    dist.barrier()
    inrank.mark("ready")
    inrank.gate("killed")
    time.sleep(harness.HEARD)
    return window


def told_by_survivors(body: Callable[[int, int], Any], is_apart: bool) -> dict[int, Any]:
    """Return what the survivors of three ranks give when rank 2 has been killed."""
    with machines(3, is_apart) as names, Ranks(3, hosts=names) as ranks:
        ranks.start(body, world=3, store="s")
        ranks.at("ready")
        ranks.kill(2)
        ranks.open("killed")
        return ranks.values(dead={2})


def dropping(rank: int, world: int) -> list[Any]:
    """Rank 2 dies; the others go on without it, and count."""
    window = outliving(world, 1.0, on_peer_failure="drop")
    for _ in range(3):
        window.accumulate()
        window.accumulate(require_mutex=True)
        window.get(src_weights=[2])
    inrank.meet("added", world - 1)
    sent = {to: it.dropped for to, it in window.sent().items()}
    return [sent, window.read(1 - rank).tolist()]


@pytest.mark.slow
@on_one_host_and_several
def test_what_is_for_the_dead_is_dropped_and_counted(is_apart: bool) -> None:
    told = told_by_survivors(dropping, is_apart)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "is_apart", "moment"),
    [(1000, False, 0.05), (1 << 18, False, 0.11), (1 << 18, False, 0.23), (1 << 18, True, 0.15)],
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


def scaling(rank: int, world: int) -> list[Any]:
    """Rank 2 dies; what rank 0 gives to it and to rank 1 is given away."""
    import bluefog_pg as bf

    bf.torch.turn_on_win_ops_with_associated_p()
    window = outliving(world, 8.0)
    error = None
    if rank == 0:
        error = inrank.catch(window.accumulate, self_weight=0.5, dst_weights={1: 0.25, 2: 0.25})
    inrank.meet("given", world - 1)
    got = window.update_then_collect().tolist(), window.associated_p
    freed = inrank.catch(window.free)
    return [error, got, freed, inrank.catch(window.put), sorted(bf.window_stats())]


@pytest.mark.slow
@on_one_host_and_several
def test_what_is_given_is_given_away_though_one_is_dead(is_apart: bool) -> None:
    told = told_by_survivors(scaling, is_apart)
    harness.raised(told[0][0], "PeerFailed", ranks=[2], text="win_accumulate 'w'")
    assert told[0][1] == ([4.0] * 4, 0.5)
    assert told[1][1] == ([10.0] * 4, 1.25)
    for _, _, freed, after, names in told.values():
        harness.raised(freed, "PeerFailed", ranks=[2], text="win_free 'w': ")
        harness.raised(after, "ValueError", text="the window was freed")
        assert names == []


def excluding_the_dead(rank: int, world: int) -> list[Any]:
    """A survivor takes its mutexes and frees the window with "drop", and nothing is raised."""
    window = outliving(world, 1.0, on_peer_failure="drop")
    with window.mutex():
        window.accumulate(require_mutex=True)
    with window.mutex(for_self=True):
        pass
    inrank.meet("added", world - 1)
    got = window.update_then_collect().tolist()
    dropped = 0
    if rank == 1:  # This rank goes on beside one that has freed the window.
        inrank.await_file("at.freed.0")
        window.put(dst_weights=[0])
        window.accumulate(dst_weights=[0], require_mutex=True)
        window.get(src_weights=[0])
        dropped = window.sent()[0].dropped
    window.free()
    inrank.mark("freed")
    return [got, dropped]


@pytest.mark.slow
@on_one_host_and_several
def test_survivors_take_mutexes_and_free(is_apart: bool) -> None:
    told = told_by_survivors(excluding_the_dead, is_apart)
    assert told == {0: [[2.0] * 4, 0], 1: [[2.0] * 4, 3]}


def leaving(rank: int, world: int) -> list[Any] | None:
    """Rank 1 leaves the group and lives on."""
    bf = windows.ring()
    window = bf.Window(torch.ones(4), "w", zero_init=True)
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        late = inrank.catch(window.free)
        inrank.mark("left")
        inrank.gate("told")
        return [late]
    inrank.gate("left")
    time.sleep(harness.HEARD)
    return [inrank.catch(window.put), inrank.catch(window.get)]


@pytest.mark.slow
@on_one_host_and_several
def test_one_that_has_left_is_put_to_no_more(is_apart: bool) -> None:
    with machines(2, is_apart) as names, Ranks(2, hosts=names) as ranks:
        ranks.start(leaving, world=2, store="s")
        ranks.at("left", 1)
        ranks.open("left")
        put, get = ranks.answer(0)
        ranks.open("told")
        (late,) = ranks.answer(1)
    for error in (put, get):
        harness.raised(error, "PeerFailed", ranks=[1])
    harness.raised(late, "RuntimeError", text="the group has ended")


def freeing_interrupted(rank: int, world: int) -> list[Any]:
    """Ctrl-C ends rank 0's wait for the other; the window is freed there all the same."""
    bf = windows.ring()
    window = bf.Window(torch.zeros(4), "w", zero_init=True)
    dist.barrier()
    error = None
    if rank == 0:
        inrank.mark("begins")
        error = inrank.catch(window.free)
        inrank.mark("interrupted")
    else:
        inrank.gate("interrupted")
        window.free()
    other = bf.Window(torch.zeros(4), "v", zero_init=True)
    after = inrank.catch(window.put, torch.ones(4))
    dist.barrier()
    got = other.read(1 - rank).tolist()
    other.free()
    return [error, after, got]


def of_an_interrupted_rank(
    body: Callable[[int, int], list[Any]], world: int, is_apart: bool
) -> dict[int, Any]:
    """Return what ranks give when rank 0 gets a Ctrl-C in what it has marked as begun.

    The others go on when that has ended.
    """
    with machines(world, is_apart) as names, Ranks(world, hosts=names) as ranks:
        ranks.start(body, world=world, store="s")
        ranks.at("begins", 0)
        time.sleep(0.2)
        ranks.interrupt(0)
        ranks.at("interrupted", 0)
        ranks.open("interrupted")
        return ranks.values()


@pytest.mark.slow
@on_one_host_and_several
def test_freeing_that_is_interrupted(is_apart: bool) -> None:
    told = of_an_interrupted_rank(freeing_interrupted, 2, is_apart)
    harness.raised(told[0][0], "KeyboardInterrupt")
    for _, after, got in told.values():
        harness.raised(after, "ValueError", text="the window was freed")
        assert got == [0.0] * 4


def taking_and_letting_go(rank: int, world: int) -> None:
    """Rank 0 is interrupted at any instant around a with statement, and then holds nothing."""
    bf = windows.ring()
    window = bf.Window(torch.zeros(4), "w", zero_init=True)
    dist.barrier()
    if rank == 0:
        inrank.mark("begins")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                with window.mutex():
                    pass
    inrank.meet("let go", world)
    if rank == 1:
        window.update_then_collect(require_mutex=True)
    dist.barrier()
    window.free()


@pytest.mark.slow
@on_one_host_and_several
def test_an_interrupted_rank_holds_no_mutex(is_apart: bool) -> None:
    for _ in range(3):
        with machines(2, is_apart) as names, Ranks(2, hosts=names) as ranks:
            ranks.start(taking_and_letting_go, world=2, store="s", timeout=harness.at_most(3))
            ranks.at("begins", 0)
            time.sleep(0.03)
            ranks.interrupt(0)
            ranks.join()


def forked(rank: int, world: int) -> list[Any]:
    """A child is told that it has no part; what it leaves of a with statement is its parent's."""
    bf = windows.ring()
    window = bf.Window(torch.zeros(4), "w", zero_init=True)
    dist.barrier()
    exclusion = window.mutex()
    exclusion.__enter__()
    if (child := os.fork()) == 0:
        told = False
        try:
            errors = [inrank.catch(call) for call in (window.put, window.update, window.fence)]
            told = all(error and "has no part in its windows" in error.text for error in errors)
            exclusion.__exit__(None, None, None)
        finally:
            os._exit(0 if told else 1)
    _, status = os.waitpid(child, 0)
    exclusion.__exit__(None, None, None)
    window.accumulate(torch.ones(4), require_mutex=True)
    dist.barrier()
    got = window.read(1 - rank).tolist()
    window.free()
    return [status, got]


def test_a_forked_child_has_no_part(pool: harness.Pool) -> None:
    assert pool.run(forked, world=2) == [[0, [1.0] * 4]] * 2


def fenced_after_an_interrupt(rank: int, world: int, n: int) -> list[Any]:
    """Ctrl-C ends the wait for a large put that holds a mutex; the fence waits for the put."""
    bf = windows.ring()
    window, ones = bf.Window(torch.zeros(n), "w", zero_init=True), torch.ones(n)
    dist.barrier()
    error = None
    if rank == 0:
        inrank.mark("begins")
        error = inrank.catch(window.put, ones, require_mutex=True)
    window.fence()
    changes = window.states()[1 - rank].changes
    window.free()
    return [error, changes]


def test_a_fence_waits_for_what_was_interrupted() -> None:
    with hosts.network(2, "200mbit") as pair, Ranks(2, hosts=pair) as ranks:
        ranks.start(fenced_after_an_interrupt, 1 << 22, world=2, store="s")
        ranks.at("begins", 0)
        time.sleep(0.2)
        ranks.interrupt(0)
        (error, _), (_, changes) = ranks.values().values()
    harness.raised(error, "KeyboardInterrupt")
    assert changes == 1


def interrupted_on_the_way(rank: int, world: int) -> list[Any]:
    """The others hold the mutexes that rank 0's put requires, when Ctrl-C comes."""
    import bluefog_pg as bf

    bf.set_topology(bf.topology_util.FullyConnectedGraph(world))
    window = bf.Window(torch.zeros(4), "w", zero_init=True)
    error = None
    if rank == 0:
        dist.barrier()
        inrank.mark("begins")
        error = inrank.catch(window.put, torch.ones(4), require_mutex=True)
        inrank.mark("interrupted")
    else:
        with window.mutex(for_self=True):
            dist.barrier()
            inrank.gate("interrupted")
    window.fence()
    versions = window.versions()
    window.free()
    return [error, sum(versions.values())]


@pytest.mark.slow
@on_one_host_and_several
def test_ctrl_c_ends_a_call_with_several_ranks(is_apart: bool) -> None:
    (error, _), *others = of_an_interrupted_rank(interrupted_on_the_way, 3, is_apart).values()
    assert harness.raised(error, "KeyboardInterrupt").took() < harness.WITHIN
    assert others == [[None, 0]] * 2
