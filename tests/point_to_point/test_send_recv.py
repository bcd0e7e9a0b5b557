"""send, recv, isend and irecv keep tags and order, also from any source and in batches."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, oracle

pytestmark = pytest.mark.mpi

ANY_KIND = (*oracle.DTYPES, torch.complex64)


def ring(rank: int, world: int, n: int) -> None:
    """Send every kind around the ring, blocking: even ranks send first."""
    right, left = (rank + 1) % world, (rank - 1) % world
    bad = []
    for seed, dtype in enumerate(ANY_KIND):
        real = torch.float32 if dtype.is_complex else dtype
        mine, theirs = (oracle.values(real, n, seed, r).to(dtype) for r in (rank, left))
        got = torch.zeros(n, dtype=dtype)
        first, second = (dist.send, dist.recv) if rank % 2 == 0 else (dist.recv, dist.send)
        for call in (first, second):
            call(mine, right) if call is dist.send else call(got, left)
        if not torch.equal(got, theirs):
            at = (got != theirs).nonzero().flatten()[:5]
            bad.append(f"{dtype}[{n}]: {got[at]} instead of {theirs[at]} at {at.tolist()}")
    assert not bad, bad


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("n", [0, 1, 1023, 16385, 262145])
def test_ring(pool: harness.Pool, n: int, world: int) -> None:
    pool.run(ring, n, world=world)


def both_ways(rank: int, world: int, n: int) -> None:
    """Send more than any buffer holds, in all directions at once, which must not lock up."""
    peers = [r for r in range(world) if r != rank]
    got = {p: torch.zeros(n) for p in peers}
    works = [dist.isend(torch.full((n,), float(10 * rank + p)), p) for p in peers]
    works += [dist.irecv(got[p], p) for p in peers]
    for work in works:
        work.wait()
    bad = {p: got[p].unique() for p in peers if not (got[p] == 10 * p + rank).all()}
    assert not bad, f"rank {rank} got from others {bad}"


def test_large_both_ways_at_once(pool: harness.Pool) -> None:
    pool.run(both_ways, 2 << 20)


def tags(rank: int, world: int) -> list[float]:
    """Receives name tags in another order than the sends; one tag keeps its order."""
    order = [3, 0, 2**31 - 1, 3, 7, 3]
    if rank == 0:
        works = [dist.isend(torch.tensor([float(i)]), 1, tag=t) for i, t in enumerate(order)]
        for work in works:
            work.wait()
        return []
    got = {i: torch.zeros(1) for i in range(len(order))}
    pending = []
    for i in (4, 2, 0, 1, 3, 5):  # Tag 3 brings 0, then 3, then 5.
        pending.append(dist.irecv(got[i], 0, tag=order[i]))
    for work in reversed(pending):
        work.wait()
    return [got[i].item() for i in range(len(order))]


def test_tags(pool: harness.Pool) -> None:
    assert pool.run(tags, world=2)[1] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def late_receiver(rank: int, world: int) -> list[float]:
    if rank == 0:
        works = [dist.isend(torch.full((50_000,), float(i)), 1, tag=i % 3) for i in range(30)]
        for work in works:
            work.wait()
        return []
    time.sleep(0.2)  # All messages come unexpected.
    got = []
    for i in sorted(range(30), key=lambda i: (i % 3, i)):
        t = torch.zeros(50_000)
        dist.recv(t, 0, tag=i % 3)
        got.append(t[0].item() if (t == t[0]).all() else -1.0)
    return got


def test_unexpected_messages_wait_for_their_receive(pool: harness.Pool) -> None:
    want = [float(i) for i in sorted(range(30), key=lambda i: (i % 3, i))]
    assert pool.run(late_receiver, world=2)[1] == want


def flood(rank: int, world: int, count: int) -> int:
    """More unexpected bytes than anybody would want to buffer lie before the one awaited."""
    group = dist.new_group(timeout=timedelta(seconds=12))
    right = 0
    if rank == 0:
        tensors = [torch.full((32768,), float(i)) for i in range(count)]
        works = [dist.isend(t, 1, group=group, tag=1) for t in tensors]
        dist.send(torch.full((3,), -1.0), 1, group=group, tag=2)
        for work in works:
            work.wait()
    else:
        t = torch.zeros(3)
        dist.recv(t, 0, group=group, tag=2)
        assert (t == -1).all()
        for i in range(count):
            t = torch.zeros(32768)
            dist.recv(t, 0, group=group, tag=1)
            right += bool((t == i).all())
    dist.barrier()
    dist.destroy_process_group(group)
    return right


def test_a_message_passes_any_number_that_wait_for_another_tag(pool: harness.Pool) -> None:
    assert pool.run(flood, 700, world=2, timeout=25)[1] == 700


def pile(rank: int, world: int, count: int) -> None:
    tensors = [torch.full((4,), float(i * rank)) for i in range(count)]
    if rank == 0:
        works = [dist.irecv(t, 1) for t in tensors]
    dist.barrier()
    if rank == 1:
        works = [dist.isend(t, 0) for t in tensors]
    for work in works:
        work.wait()
    bad = [(i, t[0].item()) for i, t in enumerate(tensors) if t[0].item() != i]
    assert not bad, f"{len(bad)} differ, of which the first are {bad[:10]}"


@pytest.mark.slow
def test_forty_thousand_at_once(pool: harness.Pool) -> None:
    # This took 40 s when each frame had all of them looked at, and takes 1 s now.
    pool.run(pile, 40_000, world=2, timeout=25)


def any_source(rank: int, world: int, n: int) -> list[tuple[int, float]]:
    rounds = 20
    if rank:
        for i in range(rounds):
            dist.send(torch.full((n,), float(100 * rank + i)), 0, tag=5)
        return []
    got = []
    for _ in range(rounds * (world - 1)):
        t = torch.zeros(n)
        source = dist.recv(t, None, tag=5)
        got.append((source, t[-1].item() if (t == t[0]).all() else -1.0))
    return got


@pytest.mark.parametrize("n", [1, 100_000])
def test_any_source_tells_who_and_keeps_order(pool: harness.Pool, n: int) -> None:
    got = pool.run(any_source, n)[0]
    for peer in (1, 2, 3):
        assert [v for s, v in got if s == peer] == [100.0 * peer + i for i in range(20)]


def any_source_work(rank: int, world: int) -> list[Any]:
    if rank == 0:
        t = torch.zeros(2)
        work = dist.irecv(t)
        early = work.is_completed()
        dist.barrier()
        work.wait()
        return [early, work._source_rank(), t.tolist()]
    dist.barrier()
    if rank == 2:
        dist.send(torch.tensor([2.0, 3.0]), 0)
    return []


def test_any_source_asynchronous(pool: harness.Pool) -> None:
    assert pool.run(any_source_work, world=3)[0] == [False, 2, [2.0, 3.0]]


def mixed_sources(rank: int, world: int) -> list[Any]:
    """Each message goes to one only of an any-source receive and a named one side by side."""
    if rank == 0:
        a, b = torch.zeros(1), torch.zeros(1)
        named, any_one = dist.irecv(a, 1, tag=1), dist.irecv(b, tag=1)
        dist.barrier()
        named.wait()
        any_one.wait()
        return [a.item(), b.item(), any_one._source_rank()]
    dist.barrier()
    dist.send(torch.tensor([float(rank)]), 0, tag=1)
    return []


def test_any_source_beside_a_named_receive(pool: harness.Pool) -> None:
    assert pool.run(mixed_sources, world=3)[0] == [1.0, 2.0, 2]


def to_self(rank: int, world: int) -> list[float]:
    got = torch.zeros(70_000)
    pending = dist.irecv(got, rank)
    dist.isend(torch.full((70_000,), rank + 0.5), rank).wait()
    pending.wait()
    return sorted(set(got.tolist()))


@pytest.mark.parametrize("world", [1, 2])
def test_isend_to_oneself(pool: harness.Pool, world: int) -> None:
    assert pool.run(to_self, world=world) == [[r + 0.5] for r in range(world)]


def batch(rank: int, world: int) -> list[float]:
    """Exchange around a ring with the receive first on all ranks."""
    got = torch.zeros(30_000)
    ops = [
        dist.P2POp(dist.irecv, got, (rank - 1) % world),
        dist.P2POp(dist.isend, torch.full((30_000,), float(rank)), (rank + 1) % world),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return sorted(set(got.tolist()))


def test_batch_isend_irecv(pool: harness.Pool) -> None:
    assert pool.run(batch) == [[3.0], [0.0], [1.0], [2.0]]


def dropped(rank: int, world: int) -> list[float]:
    """Nobody keeps the Work or the tensor of a send."""
    got = []
    for i in range(40):
        if rank == 0:
            dist.isend(torch.full((5000,), float(i)), 1)
        else:
            t = torch.zeros(5000)
            dist.recv(t, 0)
            got.append(t[4999].item())
    dist.barrier()
    return got


def test_dropped_sends_arrive(pool: harness.Pool) -> None:
    assert pool.run(dropped, world=2)[1] == [float(i) for i in range(40)]


def shapes(rank: int, world: int) -> list[Any]:
    """Scalars, offset views, rows and columns are buffers; nothing beside them is written."""
    if rank == 0:
        dist.send(torch.tensor(4.5), 1)
        dist.send(torch.arange(10.0)[3:7], 1)
        dist.send(torch.arange(8.0)[::2], 1)
        return []
    scalar, matrix = torch.tensor(0.0), torch.zeros(3, 4)
    dist.recv(scalar, 0)
    dist.recv(matrix[1], 0)
    table = torch.zeros(4, 3)
    dist.recv(table[:, 1], 0)
    return [scalar.item(), matrix.tolist(), table.t().tolist()]


def test_views(pool: harness.Pool) -> None:
    zeros = [0.0] * 4
    want = [4.5, [zeros, [3, 4, 5, 6], zeros], [zeros, [0, 2, 4, 6], zeros]]
    assert pool.run(shapes, world=2)[1] == want


def in_subgroup(rank: int, world: int) -> list[Any]:
    """Peers are named by global ranks (or group_dst=), whatever the group's own numbering."""
    group = dist.new_group([1, 3])
    got = torch.zeros(2)
    if rank == 1:
        dist.send(torch.tensor([1.0, 2.0]), 3, group=group)
        dist.recv(got, 3, group=group)
    elif rank == 3:
        source = dist.recv(got, None, group=group)
        dist.send(got * 10 + source, group=group, group_dst=0)
    if rank in (1, 3):
        dist.destroy_process_group(group)
    return got.tolist()


def test_within_a_subgroup(pool: harness.Pool) -> None:
    assert pool.run(in_subgroup) == [[0, 0], [11, 21], [0, 0], [1, 2]]


def behind_a_flood_of_averages(rank: int, world: int) -> list[float]:
    import bluefog_pg

    x, n = torch.ones(1 << 15), 600
    if rank == 0:
        works = [
            bluefog_pg.neighbor_allreduce(
                x, self_weight=1.0, src_weights={}, dst_weights=[1], async_op=True
            )
            for _ in range(n)
        ]
        dist.send(torch.full((4,), 7.0), 1, tag=7)
        for work in works:
            work.wait()
        return [7.0, 1.0]
    got = torch.zeros(4)
    dist.recv(got, 0, tag=7)
    for _ in range(n):
        x = bluefog_pg.neighbor_allreduce(
            torch.ones(1 << 15), self_weight=0.5, src_weights={0: 0.5}, dst_weights=[]
        )
    return [got[0].item(), x.mean().item()]


def test_a_message_passes_any_number_of_averages(pool: harness.Pool) -> None:
    assert pool.run(behind_a_flood_of_averages, world=2, timeout=30) == [[7.0, 1.0]] * 2
