"""A rank whose time is up says so in golden words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.messages import golden
from tests.support.messages.alone import ALONE, called_alone
from tests.support.messages.bodies import Labeled, after_the_others, group_of, pair, telling
from tests.support.messages.calls import all_reduce, average, monitored_barrier, recv, send
from tests.support.messages.tensors import LARGE, f


@telling
def stay_away(rank: int, world: int) -> Iterator[Labeled]:
    """Rank 3 stays away from each call, or comes late."""
    for name in ALONE:
        with pair() as group, after_the_others(rank == 3):
            if rank in (1, 3):
                group.set_timeout(timedelta(seconds=0.3))
            if rank == 1:
                yield from called_alone(name, group)
            if rank == 3 and name == "all_reduce":
                yield "all_reduce, late", inrank.catch(all_reduce(f(4)), group)


@telling
def call_something_else(rank: int, world: int) -> Iterator[Labeled]:
    """Neighbors average by different names: each has sent, and nobody has called for it."""
    calls = {1: average(f(4)), 3: average(f(4), "parameters")}
    with pair() as group:
        if rank in calls:
            group.set_timeout(timedelta(seconds=0.5))
            yield f"average by another name, rank {rank}", inrank.catch(calls[rank], group)


@telling
def send_too_late(rank: int, world: int) -> Iterator[Labeled]:
    """Send a large message, which needs its receiver, after that one has given up."""
    with pair() as group:
        if rank == 1:
            group.set_timeout(timedelta(seconds=0.3))
            inrank.catch(recv(f(LARGE), 1), group)
            group.set_timeout(timedelta(seconds=20))
        dist.barrier()
        if rank == 1:
            recv(f(1), 1, tag=1)(group)
        if rank == 3:
            yield "send too late", inrank.catch(send(f(LARGE), 0), group)
            send(f(1), 0, tag=1)(group)


@telling
def wait_shortly(rank: int, world: int) -> Iterator[Labeled]:
    with pair() as group, after_the_others(rank == 3):
        if rank == 1:
            work = dist.irecv(f(4), group=group, group_src=1)
            for milliseconds in (100, 20):
                error = inrank.catch(work.wait, timedelta(milliseconds=milliseconds))
                yield f"wait of {milliseconds} ms", error
        if rank == 3:
            send(f(4), 0)(group)


@telling
def one_of_four_stays_away(rank: int, world: int) -> Iterator[Labeled]:
    with group_of() as group:
        group.set_timeout(timedelta(seconds=1))
        if rank != 3:
            yield f"of four, rank {rank}", inrank.catch(all_reduce(f(4)), group)


@telling
def two_of_four_come_late(rank: int, world: int) -> Iterator[Labeled]:
    """Two of four ranks come late to a monitored barrier."""
    for label, wait_all_ranks in (("first", False), ("all", True)):
        with group_of() as group, after_the_others(rank >= 2):
            error = inrank.catch(monitored_barrier(0.6, wait_all_ranks), group)
            yield f"monitored_barrier, {label}, rank {rank}", error


@telling
def rank_0_stays_away(rank: int, world: int) -> Iterator[Labeled]:
    """Rank 0 of the group, which watches who comes to a monitored barrier, stays away."""
    with pair() as group:
        if rank == 3:
            error = inrank.catch(monitored_barrier(0.2), group)
            yield "monitored_barrier, nobody at rank 0", error
            yield "monitored_barrier, no time", inrank.catch(monitored_barrier(0), group)


BODIES = (
    stay_away,
    call_something_else,
    send_too_late,
    wait_shortly,
    one_of_four_stays_away,
    two_of_four_come_late,
    rank_0_stays_away,
)


@pytest.mark.slow
def test_messages(pool: harness.Pool) -> None:
    golden.agree("timeouts", (told for body in BODIES for told in pool.run(body)))
