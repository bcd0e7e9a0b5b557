"""A group leaves no descriptors, threads, memory or sockets, and an idle one takes no CPU time."""

from __future__ import annotations

import fcntl
import gc
import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank

F_GET_SEALS, F_SEAL_SHRINK, F_SEAL_GROW = 1034, 2, 4


def use_everything(rank: int, world: int) -> None:
    import bluefog_pg

    peer, other = (rank + 1) % world, (rank - 1) % world
    for n in (1, 5000, 400_000):
        t = torch.ones(n)
        dist.all_reduce(t)
        dist.broadcast(t, 0)
        dist.all_gather([torch.empty(n) for _ in range(world)], t)
        dist.reduce_scatter([torch.empty(n)][0], [t.clone() for _ in range(world)])
        works = [dist.isend(t, peer), dist.irecv(torch.empty(n), other)]
        works += [dist.all_reduce(torch.ones(n), async_op=True) for _ in range(5)]
        for work in works:
            work.wait()
        bluefog_pg.neighbor_allreduce(t)
    works[-1].get_future().then(lambda f: f.value()).wait()
    group = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(t, group=group)
    dist.barrier()


def once(rank: int, world: int, store: str) -> None:
    inrank.init(store, rank, world)
    use_everything(rank, world)
    dist.destroy_process_group()
    gc.collect()


def first_life(rank: int, world: int) -> list[inrank.Footprint]:
    import bluefog_pg

    torch.futures.Future().set_result(1)
    assert bluefog_pg.ProcessGroupBluefog  # The library itself stays loaded.
    gc.collect()
    before = inrank.footprint()
    once(rank, world, "first")
    return [before, inrank.footprint()]


def test_a_process_is_as_before_after_destroy() -> None:
    for before, after in harness.run_ranks(first_life, 3, world=0):
        assert before == after


def lives(rank: int, world: int, rounds: int) -> list[Any]:
    dist.destroy_process_group()
    for i in range(3):
        once(rank, world, f"warm.{i}")
    before, memory = inrank.footprint(), inrank.rss()
    for i in range(rounds):
        inrank.init(f"life.{i}", rank, world)
        t = torch.ones(i * 300)
        dist.all_reduce(t)
        dist.barrier(async_op=True).wait()
        dist.destroy_process_group()
    gc.collect()
    after, grown = inrank.footprint(), inrank.rss() - memory
    inrank.init("life.last", rank, world)
    return [before, after, grown]


@pytest.mark.slow
def test_forty_lives(pool: harness.Pool) -> None:
    for before, after, grown in pool.run(lives, 40, world=3, timeout=90):
        assert before == after
        assert grown < 4 << 20, f"{grown / 2**20:.1f} MiB"


def many_groups(rank: int, world: int, rounds: int) -> list[Any]:
    """Make groups that do nothing, that block, and that need the engine's thread."""
    t = torch.ones(100)

    def some(count: int) -> None:
        for i in range(count):
            group = dist.new_group()
            if i % 3:
                work = dist.all_reduce(t, dist.ReduceOp.MAX, group, async_op=i % 3 == 2)
                assert work is None or work.wait()
            dist.destroy_process_group(group)
        gc.collect()

    # The flight recorder that torch 2.15 attaches to each group keeps a kilobyte of it for good.
    with mock.patch.dict(os.environ, {"TORCH_FR_BUFFER_SIZE": "0"}):
        some(50)
        before, memory = inrank.footprint(), inrank.rss()
        some(rounds)
        return [before, inrank.footprint(), inrank.rss() - memory]


@pytest.mark.slow
def test_a_thousand_groups(pool: harness.Pool) -> None:
    """Only torch's FileStore grows, which keeps the records of each group in each rank."""
    for before, after, grown in pool.run(many_groups, 1000, world=2, timeout=90):
        assert before == after
        assert grown < 2 << 20, f"{grown / 1024:.0f} KiB"


def tiny_ones(rank: int, world: int, rounds: int) -> int:
    t = torch.zeros(1)

    def some(count: int) -> None:
        for _ in range(count):
            dist.all_reduce(t)
        gc.collect()

    some(20_000)
    before = inrank.rss()
    some(rounds)
    return inrank.rss() - before


@pytest.mark.slow
def test_tiny_operations_leave_a_byte_at_most(pool: harness.Pool) -> None:
    rounds = 200_000
    for grown in pool.run(tiny_ones, rounds, world=2, timeout=rounds * 3e-4):
        assert grown < rounds, f"{grown / 1024:.0f} KiB"


def small_ones(rank: int, world: int, rounds: int) -> int:
    """Return the bytes that stay after many operations of every way to issue one."""
    import bluefog_pg

    t, peer = torch.ones(10), 1 - rank

    def some(count: int) -> None:
        for _ in range(count):
            dist.all_reduce(t)
            dist.all_reduce(t, async_op=True)
            w = [dist.isend(t, peer), dist.irecv(torch.empty(10), peer)]
            bluefog_pg.neighbor_allreduce(t)
            for work in w:
                work.get_future().wait()
            t.fill_(1)
        dist.barrier()
        gc.collect()

    some(rounds // 4)
    before = inrank.rss()
    some(rounds)
    return inrank.rss() - before


@pytest.mark.slow
def test_small_operations_leave_no_memory(pool: harness.Pool) -> None:
    for grown in pool.run(small_ones, 3000, world=2):
        assert grown < 1 << 20, f"{grown / 1024:.0f} KiB"


def large_ones(rank: int, world: int) -> int:
    def some(count: int) -> None:
        for i in range(count):
            dist.all_reduce(torch.ones((1 << 20) + i), async_op=True).wait()
        gc.collect()

    some(5)
    before = inrank.rss()
    some(30)
    return inrank.rss() - before


def test_large_operations_leave_no_memory(pool: harness.Pool) -> None:
    assert max(pool.run(large_ones, world=2)) < 8 << 20


def fresh_ones(rank: int, world: int) -> int:
    """Return the bytes that stay after broadcasts of fresh tensors.

    If small memory were kept for each of them, the heap could not use a tensor's place again.
    """

    def some(count: int) -> None:
        for _ in range(count):
            dist.broadcast(torch.ones(1 << 18), 0)

    some(20)
    before = inrank.rss()
    some(600)
    return inrank.rss() - before


def test_the_heap_finds_room_for_fresh_tensors(pool: harness.Pool) -> None:
    for _ in range(3):  # The result depends on what lies where.
        assert max(pool.run(fresh_ones, world=2)) < 100 << 20


def listeners() -> list[str]:
    """Return the sockets of this process to which another host could connect."""
    mine = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            mine.add(os.readlink(fd))
        except OSError:
            continue
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            column = line.split()
            if f"socket:[{column[9]}]" in mine:
                found.append(f"{table} {column[1]}")
    return found


def shared_with_children() -> int:
    """Return how many mappings of groups' memory there are, without heaps.

    Children may read the results there.
    """
    sizes = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:" in line:
            begin, end = line.split()[0].split("-")
            sizes.append(int(end, 16) - int(begin, 16))
    return sum(size < 8 << 30 for size in sizes)


def openness(rank: int, world: int) -> dict[str, Any]:
    use_everything(rank, world)
    memfds = []
    for fd in Path("/proc/self/fd").iterdir():
        try:
            if "memfd:" in os.readlink(fd):
                memfds.append(int(fd.name))
        except OSError:
            continue
    seals = [fcntl.fcntl(fd, F_GET_SEALS) for fd in memfds]
    modes = [oct(os.fstat(fd).st_mode & 0o777) for fd in memfds]
    inheritable = [fd for fd in memfds if os.get_inheritable(fd)]
    maps = shared_with_children()
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(shared_with_children()).encode())
        os._exit(0)
    in_child = int(os.read(read, 10))
    os.wait()
    os.close(read), os.close(write)
    return {
        "sockets": listeners(),
        "unsealed": [s for s in seals if not s & F_SEAL_SHRINK or not s & F_SEAL_GROW],
        "modes": [m for m in modes if m != "0o600"],
        "inheritable": inheritable,
        "maps": maps > 0,
        "maps in a forked child": in_child,
    }


def test_nothing_is_open_to_others(pool: harness.Pool) -> None:
    want = {
        "sockets": [], "unsealed": [], "modes": [], "inheritable": [], "maps": True,
        "maps in a forked child": 0,
    }  # fmt: skip
    assert pool.run(openness, world=3) == [want] * 3


def idle(rank: int, world: int) -> list[float]:
    """Return processor seconds per second while idle.

    The three shares are with nothing due, with a receive due, and in a blocked wait.
    """
    use_everything(rank, world)
    shares = []

    def measure(during: Any) -> None:
        began, used = time.monotonic(), time.process_time()
        during()
        shares.append((time.process_time() - used) / (time.monotonic() - began))

    dist.barrier()
    measure(lambda: time.sleep(1.5))
    pending = dist.irecv(torch.empty(1), 1 - rank)
    measure(lambda: time.sleep(1.5))
    dist.barrier()
    dist.send(torch.ones(1), 1) if rank == 0 else pending.wait()
    dist.send(torch.ones(1), 0) if rank == 1 else pending.wait()
    if rank == 0:
        measure(dist.barrier)
    else:
        time.sleep(1.5)
        dist.barrier()
    return shares


def test_idle_and_waiting_cost_nothing(pool: harness.Pool) -> None:
    told = pool.run(idle, world=2)
    for shares in told:
        assert shares[0] < 0.01 * harness.SLOW, f"idle: {shares[0]:.1%}"
        assert shares[1] < 0.02 * harness.SLOW, f"a receive pending: {shares[1]:.1%}"
    assert told[0][2] < 0.03 * harness.SLOW, f"waiting: {told[0][2]:.1%}"
