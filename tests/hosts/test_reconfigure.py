"""Groups whose members are on several hosts change them, among those of the first such group."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import bluefog_pg as bf
from tests.support import harness, hosts, inrank, memberships
from tests.support.harness import SLOW, WITHIN, Ranks, at_most
from tests.support.memberships import begin, change, handles, leave_file, read_file, require_sum

pytestmark = memberships.NEEDED

TOO_LATE = 2.0 * SLOW  # the timeout of a change that cannot succeed


@pytest.fixture(scope="module")
def four() -> Iterator[list[str]]:
    with hosts.network(4) as names:
        yield names


def without(members: list[str], gone: int) -> list[str]:
    return [member for i, member in enumerate(members) if i != gone]


def require_sums(local_size: int) -> None:
    """Check sums of tensors small and large, an average, and how many members this host has."""
    require_sum()
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.full((300_001,), float(rank))
    dist.all_reduce(x)
    assert (x == size * (size - 1) / 2).all(), x
    near = bf.in_neighbor_ranks()
    mean = bf.neighbor_allreduce(torch.full((1000,), float(rank)))
    assert torch.allclose(mean, torch.full((1000,), (rank + sum(near)) / (1 + len(near)))), mean
    assert bf.local_size() == local_size


def shrinks_and_grows(rank: int, world: int, rounds: int) -> None:
    begin(rank, world)
    all_ = handles("all", rank, world)
    uuid = 1
    change(uuid, all_)
    require_sums(2)
    for gone in [world - 1, 0] * rounds:  # They are on different hosts.
        if rank != gone:
            change(uuid + 1, without(all_, gone))
            assert (dist.get_rank(), dist.get_world_size()) == (rank - (rank > gone), world - 1)
            require_sums(1 if rank // 2 == gone // 2 else 2)
        change(uuid := uuid + 2, all_)
        assert (dist.get_rank(), dist.get_world_size()) == (rank, world)
        require_sums(2)
    dist.destroy_process_group()


def test_to_three_and_back(four: list[str]) -> None:
    with Ranks(4, hosts=four[:2]) as ranks:
        ranks.start(shrinks_and_grows, 3)
        ranks.values(90)
        assert set(ranks.leave().values()) == {0}


def regroups(rank: int, world: int) -> None:
    """Make groups of one host and of two, at the same time, and begin without MPI."""
    begin(rank, world)
    all_ = handles("all", rank, world)
    host, seat = divmod(rank, 2)
    for turn in range(0, 50, 10):
        change(turn + host, all_[2 * host : 2 * host + 2])
        assert (dist.get_rank(), dist.get_world_size()) == (seat, 2)
        require_sums(2)
        change(turn + 2, all_[::-1])
        assert dist.get_rank() == world - 1 - rank
        require_sums(2)
        change(turn + 3 + seat, all_[seat::2])
        assert (dist.get_rank(), dist.get_world_size()) == (host, 2)
        require_sums(1)
        change(turn + 5, set(all_))
        require_sums(2)


def test_groups_of_one_host_and_of_two(four: list[str]) -> None:
    with Ranks(4, hosts=four[:2]) as ranks:
        ranks.start(regroups)
        ranks.values(90)


def lacks(rank: int, world: int, missing: int) -> Any:
    """Change to all members once more, of whom one does not come, and then to those who do."""
    begin(rank, world)
    all_ = handles("all", rank, world)
    change(1, all_)
    require_sum()
    inrank.mark("up")
    if rank == missing:
        inrank.gate("end", 60)
        return None
    inrank.gate("gone")
    error = inrank.catch(change, 2, all_, timedelta(seconds=TOO_LATE))
    refused = inrank.catch(dist.all_reduce, torch.ones(1))
    harness.raised(refused, "RuntimeError", text="this group has no members now")
    inrank.mark("told")
    inrank.gate("again")
    change(3, without(all_, missing))
    require_sum()
    inrank.mark("went on")
    return error


# Each case names the missing rank, the number of hosts of the four ranks, and what has happened.
@pytest.mark.parametrize(
    ("missing", "hosts_n", "how"),
    [
        (3, 4, "died"),
        (0, 4, "late"),
        (3, 2, "died"),
        (3, 2, "late"),
        (0, 2, "died"),
        (0, 2, "late"),
    ],
)
def test_a_member_that_does_not_come_is_named(
    four: list[str], missing: int, hosts_n: int, how: str
) -> None:
    others = [rank for rank in range(4) if rank != missing]
    with Ranks(4, hosts=four[:hosts_n]) as ranks:
        ranks.start(lacks, missing)
        ranks.at("up")
        if how == "died":
            ranks.kill(missing)
        ranks.open("gone")
        ranks.at("told", *others)
        ranks.open("again")
        ranks.at("went on", *others)
        ranks.open("end")
        told = ranks.values(30, dead=[missing] if how == "died" else [])
    for rank in others:
        is_here = hosts.host_of(four[:hosts_n], rank, 4) == hosts.host_of(
            four[:hosts_n], missing, 4
        )
        error = told[rank]
        if how == "died" and is_here:
            assert harness.raised(error, "PeerFailed", ranks=[missing]).took() < WITHIN
        elif how == "late":
            harness.raised(error, "CollectiveTimeout", ranks=[missing])
        else:  # A rank of another host waits for the timeout, unless one of that host tells it.
            assert error.kind in ("PeerFailed", "CollectiveTimeout"), error
            assert error.ranks == (missing,), error
        assert error.took() < at_most(TOO_LATE + 1), error


def survives(rank: int, processes: int) -> Any:
    """Lose rank 1 by SIGKILL amid a collective, go on, and find that no newcomer can join."""
    begin(rank, processes)
    world = processes - 1
    limit = timedelta(seconds=TOO_LATE)
    if rank == world:
        leave_file("newcomer", dist._get_reconfigure_handle())
        error = inrank.catch(change, 3, read_file("members").split("\0"), limit)
        inrank.gate("end", 60)
        return error
    all_ = handles("all", rank, world)
    change(1, all_)
    inrank.mark("up")

    def forever() -> None:
        while True:
            require_sum()

    lost = inrank.catch(forever)
    living = without(all_, 1)
    change(2, living)
    require_sums(2 if rank < 3 else 1)
    members = [*living, read_file("newcomer")]
    if rank == 0:
        leave_file("members", "\0".join(members))
    refused = inrank.catch(change, 3, members, limit)
    change(4, living)
    require_sums(2 if rank < 3 else 1)
    inrank.mark("went on")
    return lost, refused


def test_survivors_go_on_and_a_newcomer_is_refused(four: list[str]) -> None:
    with Ranks(5, hosts=four[:2]) as ranks:  # Three are on the first host.
        task = inrank.Task(f"{__name__}:{survives.__name__}")
        for rank in range(4):
            ranks.give(rank, task)
        ranks.at("up", *range(4))
        killed = ranks.kill(1)
        ranks.give(4, task)
        ranks.at("went on", 0, 2, 3)
        ranks.open("end")
        told = ranks.values(30, dead=[1])
    for rank in (0, 2, 3):
        lost, refused = told[rank]
        assert harness.raised(lost, "PeerFailed", ranks=[1]).took(killed) < WITHIN
        harness.raised(refused, "RuntimeError", text="MPI runs in this process for other ranks")
    harness.raised(told[4], "DistBackendError", text="MPI runs in this process for other ranks")
