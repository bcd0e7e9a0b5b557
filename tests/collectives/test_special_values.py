"""Collectives take special values, many calls in a row, barriers and objects."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, oracle

pytestmark = pytest.mark.mpi

WORLDS = (1, 2, 3, 4)


def specials(rank: int, world: int) -> dict[str, list[int]]:
    """NaN and infinities end up the same everywhere, in every kind of float."""
    bits: dict[str, list[int]] = {}
    for dtype in oracle.FLOATS:
        for op in ("SUM", "MIN", "MAX", "PRODUCT", "AVG"):
            t = torch.tensor([1.0, 2.0, 3.0, -0.0], dtype=dtype).repeat(257)
            if rank == world - 1:
                t[0], t[1], t[2] = float("nan"), float("inf"), float("-inf")
            dist.all_reduce(t, getattr(dist.ReduceOp, op))
            fine = t[1].isinf() if op != "MIN" else t[2].isinf()
            if op in ("SUM", "AVG", "PRODUCT"):
                fine = fine & t[0].isnan()
            bits[f"{dtype} {op}"] = [oracle.digest(t), int(fine)]
    return bits


def test_nan_and_infinity(pool: harness.Pool) -> None:
    first, *others = pool.run(specials)
    assert all(o == first for o in others)
    assert [k for k, (_, fine) in first.items() if not fine] == []


def premul_tensor(rank: int, world: int) -> list[float]:
    t = torch.full((5,), float(rank + 1))
    dist.all_reduce(t, dist._make_nccl_premul_sum(torch.tensor([0.5])))
    return sorted(set(t.tolist()))


def test_premul_sum_by_a_tensor(pool: harness.Pool) -> None:
    assert pool.run(premul_tensor) == [[5.0]] * 4


def coalesced_of_shared_memory(rank: int, world: int) -> list[int]:
    """Reduce one tensor twice, and a view of another: each gets the sum of what it held."""
    a = torch.full((5000,), rank + 1.0)
    b = torch.arange(40_000.0) + rank
    inside, apart = b[10:20_000], torch.full((3,), rank, dtype=torch.int64)
    want = (torch.arange(40_000.0) * world + sum(range(world)))[10:20_000]
    dist.all_reduce_coalesced([a, inside, a, b])
    dist.all_reduce(apart)
    total = sum(range(1, world + 1))
    return [int((a != total).sum()), int((inside != want).sum()), int((apart != 6).sum())]


@pytest.mark.filterwarnings("ignore:.*all_reduce_coalesced:FutureWarning")
def test_coalesced_tensors_may_share_memory(pool: harness.Pool) -> None:
    assert pool.run(coalesced_of_shared_memory) == [[0, 0, 0]] * 4


def onto_itself(rank: int, world: int, count: int) -> int:
    """What still has to be sent is not overwritten by what arrives."""
    t = torch.arange(world).repeat_interleave(count) + 100 * rank
    dist.all_to_all_single(t, t)
    want = (100 * torch.arange(world) + rank).repeat_interleave(count)
    return int((t != want).sum())


@pytest.mark.parametrize("count", [4, 1 << 19])
def test_all_to_all_into_its_own_input(pool: harness.Pool, count: int) -> None:
    assert pool.run(onto_itself, count) == [0] * 4


def between_start_and_end(rank: int, world: int) -> list[float]:
    import bluefog_pg

    group = dist.group.WORLD
    cpu = torch.device("cpu")
    x, y = torch.ones(3), torch.full((70_000,), 2.0)
    group._start_coalescing(cpu)
    dist.all_reduce(x)
    dist.all_reduce(y)
    own = torch.full((2,), float(rank))
    near = bluefog_pg.neighbor_allreduce(own, self_weight=1, src_weights={})
    work = group._end_coalescing(cpu)
    work.wait()
    tensors = work.get_future().wait()
    return [x[0].item(), y[-1].item(), near[0].item(), len(tensors), tensors[0][0].item()]


def test_coalescing_makes_one_work_of_many(pool: harness.Pool) -> None:
    for rank, got in enumerate(pool.run(between_start_and_end)):
        assert got == [4.0, 8.0, float(rank), 3, 4.0]


def left_open(rank: int, world: int) -> list[float]:
    """Neither a block that an exception ends nor a thread that ends in one concerns others."""
    cpu = torch.device("cpu")
    lost = torch.ones(1)

    told: list[float] = []

    def leaves_open() -> None:
        dist.group.WORLD._start_coalescing(cpu)

    def opens_nothing() -> None:
        with pytest.raises(RuntimeError, match="has not called startCoalescing"):
            dist.group.WORLD._end_coalescing(cpu)
        told.append(-1.0)

    # The second thread may get the first one's std::thread::id.
    for call in (leaves_open, opens_nothing):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    def coalesces() -> None:
        with pytest.raises(KeyError), dist.distributed_c10d._coalescing_manager(device=cpu):
            raise KeyError
        out, got = torch.full((2,), float(rank)), torch.empty(2)
        with dist.distributed_c10d._coalescing_manager(device=cpu, async_ops=True) as manager:
            dist.isend(out, (rank + 1) % world)
            dist.irecv(got, (rank - 1) % world)
        manager.wait()
        told.append(got[0].item())

    thread = threading.Thread(target=coalesces)
    thread.start()
    thread.join()
    dist.all_reduce(lost)
    return [*told, lost.item()]


def test_a_block_left_open_is_given_up(pool: harness.Pool) -> None:
    assert pool.run(left_open) == [[-1.0, float((rank - 1) % 4), 4.0] for rank in range(4)]


def many_small(rank: int, world: int, rounds: int) -> None:
    """Make many small calls, whose rings wrap: sizes and operations change with each round."""
    bad = []
    for i in range(rounds):
        n = (i * 37) % 3000
        t = torch.full((n,), float(rank + i))
        dist.all_reduce(t)
        u = torch.full((n // 7,), i if rank == i % world else -1)
        dist.broadcast(u, i % world)
        want = sum(r + i for r in range(world))
        if not (t == want).all() or not (u == i).all():
            bad.append(f"round {i}: {t[:3]}, not {want}; {u[:3]}")
    assert not bad, bad


def test_many_small_ones(pool: harness.Pool) -> None:
    pool.run(many_small, 600)


def determined(rank: int, world: int) -> tuple[list[int], list[int]]:
    """The same call gives the same bits however late the ranks come."""
    seen = []
    for late in (*range(world), -1):
        t = oracle.values(torch.float32, 40_001, 5, rank)
        if rank == late:
            time.sleep(0.03)
        dist.all_reduce(t)
        seen.append(oracle.digest(t))
    return seen, sorted(set(seen))


def test_same_bits_each_time(pool: harness.Pool) -> None:
    assert {len(distinct) for _, distinct in pool.run(determined)} == {1}


def barriers(rank: int, world: int) -> list[tuple[float, float]]:
    times = []
    for late in range(world):
        if rank == late:
            time.sleep(0.1)
        entered = time.monotonic()
        dist.barrier()
        times.append((entered, time.monotonic()))
    return times


@pytest.mark.parametrize("world", WORLDS)
def test_barrier_holds_everyone(pool: harness.Pool, world: int) -> None:
    told = pool.run(barriers, world=world)
    for i in range(world):
        assert min(t[i][1] for t in told) >= max(t[i][0] for t in told), (
            f"left before rank {i} came"
        )


def objects(rank: int, world: int) -> list[Any]:
    out: list[Any] = [None] * world
    dist.all_gather_object(out, {"rank": rank, "pad": "x" * (rank * 1000)})
    box = [("from", rank)] if rank == 1 else [None]
    dist.broadcast_object_list(box, 1)
    return [[(o["rank"], len(o["pad"])) for o in out], box]


def test_object_collectives(pool: harness.Pool) -> None:
    want = [[(0, 0), (1, 1000), (2, 2000), (3, 3000)], [("from", 1)]]
    assert pool.run(objects) == [want] * 4
