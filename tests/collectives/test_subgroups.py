"""Subgroups are made side by side, overlapping, in any order of ranks, and over and over."""

from __future__ import annotations

import gc
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank


def total(value: float, group: Any = None, n: int = 1000) -> float:
    t = torch.full((n,), float(value))
    dist.all_reduce(t, group=group)
    assert (t == t[0]).all()
    return t[0].item()


def halves(rank: int, world: int) -> list[float]:
    low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
    mine = low if rank < 2 else high
    got = [total(rank + i, mine, n) for i, n in enumerate((1, 100, 300_000))] + [total(rank)]
    dist.destroy_process_group(mine)
    return got


def test_two_halves_side_by_side(pool: harness.Pool) -> None:
    assert pool.run(halves) == [[1, 3, 5, 6]] * 2 + [[5, 7, 9, 6]] * 2


def of_own_pair(rank: int, world: int, late: list[int]) -> list[Any]:
    """Each rank makes its own pair alone, which torch's rule forbids: pairs have one name then."""
    pair = [0, 1] if rank < 2 else [2, 3]
    group: Any = None
    if rank in late:
        time.sleep(0.5)

    def made() -> float:
        nonlocal group
        # Two ranks that publish at one instant cannot both hear of it, so one waits for its limit.
        group = dist.new_group(pair, timeout=timedelta(seconds=3))
        return total(rank, group)

    error = inrank.catch(made)
    return [error, None if error else total(rank, group)]


@pytest.mark.parametrize("late", [[], [2, 3], [1, 2]], ids=str)
def test_pairs_of_one_name_are_refused_or_right(late: list[int]) -> None:
    """A pair that is ready before the other one begins is right."""
    texts = []
    for rank, (error, value) in enumerate(harness.run_ranks(of_own_pair, 4, late)):
        assert error is not None or value == (1.0 if rank < 2 else 5.0)
        texts += [] if error is None else [error.text]
    if late == [1, 2]:  # The first ranks of the two pairs meet each other.
        wanted = "makes this group of ranks [2, 3], rank"
        assert any(wanted in text for text in texts), texts


def overlapping(rank: int, world: int) -> list[float]:
    groups = [dist.new_group([i, (i + 1) % world]) for i in range(world)]
    mine = [groups[rank], groups[(rank - 1) % world]]
    a, b = torch.tensor([float(rank)]), torch.tensor([float(rank)])
    works = [dist.all_reduce(t, group=g, async_op=True) for t, g in zip((a, b), mine, strict=True)]
    for work in reversed(works):
        work.wait()
    for group in mine:
        dist.destroy_process_group(group)
    return [a.item(), b.item()]


def test_overlapping(pool: harness.Pool) -> None:
    assert pool.run(overlapping) == [[1, 3], [3, 1], [5, 3], [3, 5]]


def unsorted(rank: int, world: int) -> list[Any]:
    group = dist.new_group([2, 0, 3], sort_ranks=False)
    if rank == 1:
        return []
    parts = [torch.zeros(1) for _ in range(3)]
    dist.all_gather(parts, torch.tensor([float(rank)]), group=group)
    root = torch.tensor([float(rank)])
    dist.broadcast(root, group_src=0, group=group)
    got = [dist.get_rank(group), [p.item() for p in parts], root.item()]
    dist.destroy_process_group(group)
    return got


def test_unsorted_ranks_keep_their_order(pool: harness.Pool) -> None:
    told = pool.run(unsorted)
    assert told == [[1, [2, 0, 3], 2], [], [0, [2, 0, 3], 2], [2, [2, 0, 3], 2]]


def local_only(rank: int, world: int) -> list[float]:
    """Only members meet, and the pairs come up in no common order."""
    ranks = [rank // 2 * 2, rank // 2 * 2 + 1]
    pair = dist.new_group(ranks, use_local_synchronization=True)
    alone = dist.new_group([rank], use_local_synchronization=True)
    got = [total(rank, pair), total(rank, alone)]
    dist.destroy_process_group(alone)
    dist.destroy_process_group(pair)
    return got


def test_local_synchronization_and_groups_of_one(pool: harness.Pool) -> None:
    assert pool.run(local_only) == [[1, 0], [1, 1], [5, 2], [5, 3]]


def cycles(rank: int, world: int, rounds: int) -> list[inrank.Footprint]:
    def once(i: int) -> None:
        members = [0, 1] if i % 3 == 1 else None
        group = dist.new_group(members)
        if members is None or rank in members:
            want = 2 if members else world
            assert total(1, group, n=(i * 997) % 5000 + 1) == want
            dist.destroy_process_group(group)

    for i in range(3):  # What is made once and kept is no leak.
        once(i)
    gc.collect()
    dist.barrier()
    before = inrank.footprint()
    for i in range(rounds):
        once(i)
    gc.collect()
    dist.barrier()
    return [before, inrank.footprint()]


def test_forty_cycles_leave_nothing(pool: harness.Pool) -> None:
    for before, after in pool.run(cycles, 40):
        assert before == after


def not_a_member(rank: int, world: int) -> Any:
    group = dist.new_group([0, 1])
    t = torch.full((2,), float(rank))
    got = dist.all_reduce(t, group=group)
    if rank < 2:
        dist.destroy_process_group(group)
    return got, t.tolist()


@pytest.mark.filterwarnings("ignore")
def test_non_members_are_left_alone(pool: harness.Pool) -> None:
    assert [t for _, t in pool.run(not_a_member)] == [[1, 1], [1, 1], [2, 2], [3, 3]]


def reinit(rank: int, world: int, rounds: int) -> list[float]:
    """Leave the world and join a new one over the same file, which has keys of the earlier life."""
    got = []
    dist.destroy_process_group()
    for i in range(rounds):
        inrank.init(f"reinit.{i % 2}", rank, world)
        got.append(total(rank + i))
        dist.barrier()
        dist.destroy_process_group()
    inrank.init("reinit.last", rank, world)
    return got


def test_destroy_and_init_again(pool: harness.Pool) -> None:
    assert pool.run(reinit, 5, world=3) == [[3.0 + 3 * i for i in range(5)]] * 3


def other_sizes(rank: int, world: int, kind: str, port: int) -> list[float]:
    """Make groups of four, three and four ranks over the very same keys."""
    dist.destroy_process_group()
    store: dist.Store = dist.FileStore(str(inrank.directory() / "sizes"))
    if kind == "tcp":
        store = dist.TCPStore("127.0.0.1", port, None, rank == 0)
    got = []
    for life, size in enumerate((4, 3, 4)):
        if kind == "file":
            store = dist.FileStore(str(inrank.directory() / "sizes"))
        inrank.meet(f"{kind}.{life}", world, 12)
        if rank < size:
            dist.init_process_group(
                "bluefog", store=store, rank=rank, world_size=size,
                timeout=timedelta(seconds=4),
            )  # fmt: skip
            got.append(total(rank))
            dist.destroy_process_group()
    inrank.init(f"sizes.{kind}", rank, world)
    return got


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_another_number_of_ranks_over_the_same_store(pool: harness.Pool, kind: str) -> None:
    told = pool.run(other_sizes, kind, harness.free_port(), timeout=25)
    assert told == [[6.0, 3.0, 6.0]] * 3 + [[6.0, 6.0]]


def leave_at_once(rank: int, world: int, rounds: int) -> None:
    """A rank that is through with init and leaves does not fail the init of slower ones."""
    dist.destroy_process_group()
    for i in range(rounds):
        inrank.init(f"at_once.{i}", rank, world)
        dist.destroy_process_group()
    inrank.init("at_once.last", rank, world)


def test_leaving_right_after_init_hurts_nobody(pool: harness.Pool) -> None:
    pool.run(leave_at_once, 30)


def split_and_merged(rank: int, world: int) -> list[Any]:
    """Call what DeviceMesh calls where a device is bound, and merge_remote_group."""
    pg: Any = dist.distributed_c10d._get_default_group()
    limit = timedelta(seconds=20)
    ranks = [2, 0] if rank % 2 == 0 else [1, 3]
    half = pg.split_group(ranks, limit, None, f"half{rank % 2}", "")
    x = torch.tensor([float(rank)])
    half.allreduce([x]).wait()
    backend = half._get_backend(torch.device("cpu"))
    told = [half.rank(), x.item(), backend.options.global_ranks_in_group]
    store = dist.distributed_c10d._get_default_store()
    whole = pg.merge_remote_group(store, world, limit, f"whole{x.numel()}", "")
    y = torch.ones(1)
    whole.allreduce([y]).wait()
    for group in (half, whole):
        group.shutdown()
    return [*told, y.item()]


def test_split_and_merge() -> None:
    # Torch 2.13 sorts the ranks; since 2.14 they keep the order in which they were given.
    sorts = torch.__version__.startswith("2.13.")
    evens, first = ([0, 2], 0) if sorts else ([2, 0], 1)
    told = harness.run_ranks(split_and_merged, 4)
    assert told == [
        [first, 2.0, evens, 4.0],
        [0, 4.0, [1, 3], 4.0],
        [1 - first, 2.0, evens, 4.0],
        [1, 4.0, [1, 3], 4.0],
    ]


def by_functions(rank: int, world: int) -> list[Any]:
    """Call bluefog_pg.collectives in a group by its own numbers.

    Ranks outside have no part in it.
    """
    from bluefog_pg import collectives

    group = dist.new_group([3, 1])
    if rank not in (1, 3):
        return []
    x = torch.tensor([float(rank)])
    work = collectives.allgather(x, group, async_op=True)
    work.wait()
    got = [
        collectives.allreduce(x, group=group).item(),
        collectives.broadcast(x, 1, group).item(),
        collectives.allgather(x, group).tolist(),
        work.result()[0].tolist(),
        work.get_future().wait()[0].tolist(),
        work.is_completed(),
    ]
    dist.destroy_process_group(group)
    return got


def test_functions_of_a_group(pool: harness.Pool) -> None:
    of_both = [2.0, 3.0, [1.0, 3.0], [1.0, 3.0], [1.0, 3.0], True]
    assert pool.run(by_functions) == [[], of_both, [], of_both]
