"""A rank whose group has ended, or whose peer has, says so in golden words."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import Ranks
from tests.support.messages import golden
from tests.support.messages.alone import ALONE, called_alone
from tests.support.messages.bodies import Calls, Labeled, after_the_others, caught, pair, telling
from tests.support.messages.calls import all_reduce, cpu, recv, send, world_group
from tests.support.messages.tensors import f, fs, sparse


@telling
def leave(rank: int, world: int) -> Iterator[Labeled]:
    """Rank 3 leaves the group in order."""
    for name in ALONE:
        with pair() as group, after_the_others(rank == 1):
            if rank == 3:
                dist.destroy_process_group(group)
            if rank == 1:
                yield from called_alone(name, group, "left, ")


def after_the_end(how: str, group: Any) -> Calls:
    """Return waits for what was pending when the group ended, and calls that come later."""
    import bluefog_pg

    b = cpu(group)
    works = {
        "recv": dist.irecv(f(4), group=group, group_src=1),
        "all_reduce": dist.all_reduce(f(4), group=group, async_op=True),
        "neighbor_allreduce": bluefog_pg.neighbor_allreduce(f(4), group=group, async_op=True),
    }
    if how == "destroyed":
        dist.destroy_process_group(group)
    else:
        b.abort()
    return {f"pending {name}": work.wait for name, work in works.items()} | {
        "wait again": works["recv"].wait,
        "future": works["recv"].get_future().wait,
        "all_reduce": lambda: b.allreduce(fs(1)),
        "barrier": b.barrier,
        "send": lambda: b.send(fs(1), 1, 0),
        "monitored_barrier": b.monitored_barrier,
    }


@telling
def end_it_here(rank: int, world: int) -> Iterator[Labeled]:
    for how in ("destroyed", "aborted"):
        with pair() as group:
            if rank == 1:
                yield from caught(after_the_end(how, group), f"{how}, ")


@telling
def ask_works(rank: int, world: int) -> Iterator[Labeled]:
    """Ask Works for what they cannot know.

    Rank 3 answers late, so that the first one runs until then.
    """
    with pair() as group:
        if rank == 1:
            received = dist.irecv(f(4), group=group, group_src=1)
            yield "work, duration while it runs", inrank.catch(received._get_duration)
            sent = dist.isend(f(4), group=group, group_dst=1)
            yield "work, source of a send", inrank.catch(sent._source_rank)
            received.wait()
        if rank == 3:
            recv(f(4), 0)(group)
            send(f(4), 0)(group)


def in_a_child(pending: dist.Work) -> Calls:
    import bluefog_pg

    return {
        "all_reduce": lambda: dist.all_reduce(f(4)),
        "all_reduce sparse": lambda: dist.all_reduce(sparse()),
        "barrier": dist.barrier,
        "broadcast": lambda: dist.broadcast(f(4), 0),
        "send": lambda: dist.send(f(4), 0),
        "recv": lambda: dist.recv(f(4), 0),
        "recv from any source": lambda: dist.recv(f(4)),
        "neighbor_allreduce": lambda: bluefog_pg.neighbor_allreduce(f(4)),
        "monitored_barrier": bluefog_pg.monitored_barrier,
        "coalescing": cpu(world_group())._start_coalescing,
        "wait": pending.wait,
    }


def told_by_a_child(calls: Calls) -> list[Labeled]:
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # This ends a child that hangs.
        try:
            with os.fdopen(there, "wb") as pipe:
                pickle.dump([*caught(calls, "forked, ")], pipe)
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        told: list[Labeled] = pickle.load(pipe)
    os.waitpid(pid, 0)
    return told


@telling
def fork(rank: int, world: int) -> Iterator[Labeled]:
    """Communicate in a child of rank 1, which has a receive from rank 3 to wait for."""
    with after_the_others(rank == 3):
        if rank == 1:
            yield from told_by_a_child(in_a_child(dist.irecv(f(4), 3, tag=5)))
        if rank == 3:
            dist.send(f(4), 1, tag=5)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def told_of_the_dead(pairs: dict[str, Any], watched: Any, pending: dist.Work) -> Iterator[Labeled]:
    import bluefog_pg

    for name, group in pairs.items():
        yield from called_alone(name, group, "killed, ")
    yield "killed, monitored_barrier", inrank.catch(bluefog_pg.monitored_barrier, watched)
    yield "killed, irecv before", inrank.catch(pending.wait)
    yield "killed, future", inrank.catch(pending.get_future().wait)


@telling
def die_in_turn(rank: int, world: int) -> Iterator[Labeled]:
    """Rank 3 dies, and then rank 2."""
    import bluefog_pg

    pairs = {name: dist.new_group([1, 3]) for name in ALONE}
    watched = dist.new_group([1, 3])
    ring, trio, everyone = dist.new_group(), dist.new_group([1, 2, 3]), dist.new_group()
    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world), group=ring)
    pending = dist.irecv(f(4), 3) if rank == 1 else None
    dist.barrier()
    if rank == 3:
        die()
    if pending:
        yield from told_of_the_dead(pairs, watched, pending)
    yield f"killed, of four, rank {rank}", inrank.catch(all_reduce(f(4)), everyone)
    if rank != 1:  # Rank 1 is no neighbor of rank 3.
        error = inrank.catch(bluefog_pg.neighbor_allreduce, f(4), group=ring)
        yield f"killed, ring, rank {rank}", error
    if rank == 1:
        yield "killed, first of two", inrank.catch(dist.recv, f(4), 3, group=trio)
    inrank.meet("one is dead", 3)
    if rank == 2:
        die()
    if rank == 1:
        yield "killed, both of two", inrank.catch(dist.recv, f(4), 2, group=trio)


@pytest.mark.slow
def test_messages(pool: harness.Pool) -> None:
    told = [told for body in (leave, end_it_here, ask_works, fork) for told in pool.run(body)]
    with Ranks(4) as ranks:
        ranks.start(die_in_turn, world=4, store="s")
        golden.agree("ends", [*told, *ranks.values(40, dead=[2, 3]).values()])
