"""Calls that are new in torch 2.14 and 2.15 work with our groups as with torch's own backends."""

from __future__ import annotations

import json
import signal
import time
import warnings
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank

c10d: Any = dist  # The stubs of torch 2.13, which mypy reads, lack all of it.
TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
since_14 = pytest.mark.skipif(TORCH < (2, 14), reason="c10d has this since torch 2.14")
since_15 = pytest.mark.skipif(TORCH < (2, 15), reason="c10d has this since torch 2.15")
CPU = torch.device("cpu")


def default_group() -> Any:
    return c10d.distributed_c10d._get_default_group()


def gathered_in_one(rank: int, world: int) -> None:
    for root in range(world):
        for async_op in (False, True):
            for shape in ((world * 6,), (world, 2, 3), (world * 2, 3)):
                mine = torch.arange(6.0).reshape(2, 3) + 10 * rank + root
                whole = torch.full(shape, -1.0) if rank == root else None
                work = c10d.gather_single(mine, whole, dst=root, async_op=async_op)
                if async_op:
                    work.wait()
                if whole is not None:
                    parts = whole.flatten().tolist()
                    expected = [float(i + 10 * r + root) for r in range(world) for i in range(6)]
                    assert parts == expected, parts


@since_14
def test_gather_single(pool: harness.Pool) -> None:
    pool.run(gathered_in_one)
    pool.run(gathered_in_one, world=1)


def gathered_apart(rank: int, world: int) -> None:
    """The root's output may have gaps or overlap the input; other types and sizes work, too."""
    wide = torch.zeros(world, 4)
    mine = torch.full((2,), float(rank))
    c10d.gather_single(mine, wide[:, ::2] if rank == 1 else None, dst=1)
    if rank == 1:
        assert wide.tolist() == [[float(r), 0.0, float(r), 0.0] for r in range(world)], wide
    whole = torch.arange(3 * world) if rank == 0 else torch.arange(3)
    c10d.gather_single(whole[-3:] if rank == 0 else whole, whole if rank == 0 else None)
    if rank == 0:
        first = [3 * world - 3, 3 * world - 2, 3 * world - 1]
        assert whole.tolist() == first + [0, 1, 2] * (world - 1), whole
    empty = torch.empty(0, dtype=torch.bool)
    c10d.gather_single(empty, empty.clone() if rank == 0 else None)
    # A rank that gathers into a list meets those that gather into one tensor.
    got = [torch.zeros(1) for _ in range(world)]
    one = torch.tensor([float(rank)])
    if rank == 0:
        dist.gather(one, got)
        assert [x.item() for x in got] == [float(r) for r in range(world)], got
    else:
        c10d.gather_single(one)


@since_14
def test_gather_single_takes_what_gather_takes(pool: harness.Pool) -> None:
    pool.run(gathered_apart)


def refused(rank: int, world: int) -> list[inrank.Raised | None]:
    group, options = default_group(), c10d.GatherOptions()
    options.rootRank = rank  # Each rank is a root, so that no other rank waits for it.

    def gather(output: torch.Tensor, given: torch.Tensor) -> inrank.Raised | None:
        return inrank.catch(group.gather_single, output, given, options)

    return [
        gather(torch.zeros(2), torch.zeros(2)),
        gather(torch.zeros(2 * world, dtype=torch.int32), torch.zeros(2)),
        gather(torch.zeros(1).expand(2 * world), torch.zeros(2)),
    ]


@since_14
def test_gather_single_names_what_is_wrong(pool: harness.Pool) -> None:
    for rank, (size, dtype, shared) in enumerate(pool.run(refused)):
        who = f"[bluefog] rank {rank}/4 gather_single: "
        harness.raised(size, "ValueError", text=who)
        harness.raised(dtype, "TypeError", text=who)
        harness.raised(shared, "ValueError", text=who)


def called_by_new_names(rank: int, world: int) -> list[str]:
    ones = torch.ones(2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        whole = torch.zeros(2 * world)
        c10d.all_gather_single(whole, ones * rank)
        assert whole.tolist() == [float(r) for r in range(world) for _ in range(2)], whole
        part = torch.zeros(2)
        c10d.reduce_scatter_single(part, whole)
        assert part.tolist() == [float(world * rank)] * 2, part
        swapped = torch.zeros(world)
        c10d.all_to_all_single(swapped, torch.arange(float(world)) + 10 * rank)
        assert swapped.tolist() == [float(rank + 10 * r) for r in range(world)], swapped
        backend = default_group()._get_backend(CPU)
        backend.all_gather_single_coalesced([whole, swapped], [ones, torch.ones(1)]).wait()
        assert whole.tolist() == [1.0] * (2 * world), whole
        backend.reduce_scatter_single_coalesced([part], [whole]).wait()
        assert part.tolist() == [float(world)] * 2, part
        objects: list[Any] = [None] * world
        dist.all_gather_object(objects, rank)
        assert objects == list(range(world)), objects
        dist.barrier()
        default_group().set_timeout(timedelta(seconds=30))
    return [f"{w.category.__name__}: {w.message}" for w in told]


@since_14
def test_new_names_work_without_a_warning(pool: harness.Pool) -> None:
    assert pool.run(called_by_new_names) == [[]] * 4


def called_by_a_signal_handler(rank: int, world: int) -> tuple[list[float], list[float]]:
    """Rank 1 comes to the outer call only when rank 0 has made the inner one inside of it."""
    other = dist.new_group(timeout=timedelta(seconds=20))
    outer, inner = torch.zeros(world), torch.zeros(world)
    mine = torch.tensor([float(rank)])

    def call(*_: Any) -> None:
        c10d.all_gather_single(inner, mine, group=other)

    if rank == 0:
        before = signal.signal(signal.SIGALRM, call)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    else:
        call()
    c10d.all_gather_single(outer, mine)
    if rank == 0:
        signal.signal(signal.SIGALRM, before)
    dist.destroy_process_group(other)
    return outer.tolist(), inner.tolist()


@since_14
def test_a_signal_handler_may_make_the_same_call(pool: harness.Pool) -> None:
    assert pool.run(called_by_a_signal_handler, world=2) == [([0.0, 1.0], [0.0, 1.0])] * 2


def told_timeouts(rank: int, world: int) -> list[float]:
    times = []
    for seconds in (17, 23):
        c10d.set_timeout(timedelta(seconds=seconds))
        works = [dist.all_reduce(torch.ones(1), async_op=True)]
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as several:
            dist.all_reduce(torch.ones(1))
            dist.all_reduce(torch.ones(2))
        ring = [
            dist.P2POp(dist.isend, torch.ones(1), (rank + 1) % world),
            dist.P2POp(dist.irecv, torch.ones(1), (rank - 1) % world),
        ]
        works += [*several.works, *dist.batch_isend_irecv(ring)]
        for work in works:
            work.wait()
            told: Any = work
            times.append(told.timeout.total_seconds())
    return times


@since_14
def test_a_work_knows_its_timeout(pool: harness.Pool) -> None:
    for times in pool.run(told_timeouts):
        half = len(times) // 2
        assert times == [17.0] * half + [23.0] * half, times


def waits_in_vain(rank: int, world: int) -> inrank.Raised | None:
    c10d.set_timeout(timedelta(seconds=0.5))
    error = inrank.catch(dist.recv, torch.ones(1), 1) if rank == 0 else None
    c10d.set_timeout(timedelta(seconds=30))
    return error


@since_14
def test_set_timeout_holds_for_later_calls(pool: harness.Pool) -> None:
    error, *others = pool.run(waits_in_vain)
    assert harness.raised(error, "CollectiveTimeout", ranks=[1]).took() < harness.at_most(3)
    assert others == [None] * 3


def not_all_come(rank: int, world: int, wait_all_ranks: bool) -> inrank.Raised | None:
    error = None
    if rank < 2:
        error = inrank.catch(
            dist.monitored_barrier,
            timeout=timedelta(seconds=1), wait_all_ranks=wait_all_ranks,
        )  # fmt: skip
    else:
        # They come when the others have given up, and hear that from rank 0's answer.
        time.sleep(1.8)
        error = inrank.catch(dist.monitored_barrier, timeout=timedelta(seconds=1))
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    return error


@since_14
@pytest.mark.parametrize(("wait_all", "late"), [(False, [2]), (True, [2, 3])])
def test_torchs_monitored_barrier(pool: harness.Pool, wait_all: bool, late: list[int]) -> None:
    text = "failed to pass monitoredBarrier in 1000 ms"
    for error in pool.run(not_all_come, wait_all):
        harness.raised(error, "CollectiveTimeout", ranks=late, text=text)


def seen_by_hooks(rank: int, world: int) -> list[list[Any]]:
    group, seen = default_group(), list[list[Any]]()

    def before(args: Any) -> None:
        seen.append(["pre", args.name.name, args.op_id, args.root, len(args.input_tensors)])

    def after(args: Any) -> None:
        seen.append(["post", args.name.name, args.op_id, args.work is not None])

    group.register_pre_hook(7, before)
    group.register_post_hook(7, after)
    try:
        ones = torch.ones(2)
        dist.all_reduce(ones)
        dist.broadcast(ones, 1)
        dist.reduce(ones, 2)
        c10d.all_gather_single(torch.ones(2 * world), ones)
        c10d.reduce_scatter_single(torch.ones(1), torch.ones(world))
        c10d.all_to_all_single(torch.ones(world), torch.ones(world))
        c10d.gather_single(ones, torch.ones(2 * world) if rank == 0 else None)
        dist.barrier()
    finally:
        group.unregister_pre_hook(7)
        group.unregister_post_hook(7)
    dist.all_reduce(ones)
    return seen


@since_14
def test_hooks_see_every_collective(pool: harness.Pool) -> None:
    for seen in pool.run(seen_by_hooks):
        assert [row[0] for row in seen] == ["pre", "post"] * 8, seen
        names = [row[1].split("_")[0] for row in seen if row[0] == "pre"]
        assert names[:3] == ["ALLREDUCE", "BROADCAST", "REDUCE"], names
        assert names[-2:] == ["GATHER", "BARRIER"], names
        assert [row[3] for row in seen if row[0] == "pre"][1:3] == [1, 2], seen
        for begins, ends in zip(seen[::2], seen[1::2], strict=True):
            assert begins[1:3] == ends[1:3], (begins, ends)
            assert ends[3], ends


def asked_for_its_parts(rank: int, world: int) -> None:
    import bluefog_pg

    backend = c10d.get_backend_impl()
    assert isinstance(backend, bluefog_pg.ProcessGroupBluefog), backend
    assert backend is default_group().get_backend(CPU)
    half = dist.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)
    assert c10d.get_backend_impl(half).options.group_name == half.group_name
    assert half._get_sequence_number_for_group() == 0
    dist.all_reduce(torch.ones(1), group=half)
    assert half._get_sequence_number_for_group() == 1
    dist.destroy_process_group(half)


@since_14
def test_backend_and_sequence_number(pool: harness.Pool) -> None:
    pool.run(asked_for_its_parts)


def split_with_its_options(rank: int, world: int) -> None:
    """The parent's options stay its own, and the part's have the names that torch gives it."""
    pg = default_group()
    options = pg._get_backend(CPU).options
    before = (options.group_name, options._timeout, options.global_ranks_in_group)
    half: Any = pg.split_group([2, 0] if rank % 2 == 0 else [1, 3], timedelta(seconds=9), None, "h")
    after = (options.group_name, options._timeout, options.global_ranks_in_group)
    assert after == before, after
    made = half._get_backend(CPU).options
    assert made.group_name == "h", made.group_name
    assert made._timeout == timedelta(seconds=9), made._timeout
    x = torch.ones(1)
    half.allreduce([x]).wait()
    assert x.item() == 2.0, x
    half.shutdown()


@since_14
def test_a_split_leaves_the_parents_options_alone() -> None:
    harness.run_ranks(split_with_its_options, 4)


def bound_to_a_cpu(rank: int, world: int) -> None:
    """Torch makes the subgroups of a bound group by splits; those left out take part in nothing."""
    dist.init_process_group(
        "bluefog", init_method=f"file://{inrank.directory() / 'bound'}", rank=rank,
        world_size=world, device_id=torch.device("cpu:0"), timeout=timedelta(seconds=30),
    )  # fmt: skip
    some = dist.new_group([0, 2, 3])
    x = torch.tensor([float(rank)])
    if rank != 1:
        dist.all_reduce(x, group=some)
        assert x.item() == 5.0, x
    half: Any = dist.split_group(split_ranks=[[1, 0], [3, 2]], timeout=timedelta(seconds=20))
    assert dist.get_rank(half) == 1 - rank % 2, dist.get_rank(half)
    y = torch.tensor([float(rank)])
    dist.all_reduce(y, group=half)
    assert y.item() == (1.0 if rank < 2 else 5.0), y
    assert dist.get_backend(half) == "bluefog", dist.get_backend(half)
    made = half._get_backend(CPU).options
    assert made._timeout == timedelta(seconds=20), made._timeout
    assert made.group_name == half.group_name, made.group_name
    dist.destroy_process_group()


@since_15
def test_a_group_bound_to_a_cpu_is_split() -> None:
    with harness.Ranks(4) as ranks:
        ranks.start(bound_to_a_cpu)
        ranks.join()


def fails(rank: int, world: int) -> list[str]:
    group = dist.new_group(timeout=timedelta(seconds=20))
    backend: Any = c10d.get_backend_impl(group)
    told = [backend.get_error().name]
    backend.set_timeout(timedelta(seconds=0.5))
    if rank != 1:
        inrank.catch(dist.all_reduce, torch.ones(1), group=group)
    else:
        time.sleep(1)
        inrank.catch(dist.all_reduce, torch.ones(1), group=group)
    told.append(backend.get_error().name)
    dist.destroy_process_group(group)
    return told


@since_14
def test_get_error_says_why_collectives_fail(pool: harness.Pool) -> None:
    assert pool.run(fails) == [["SUCCESS", "TIMEOUT"]] * 4


def recorded(rank: int, world: int) -> list[tuple[str, str, bool]]:
    """One operation of six hangs until its deadline; the others have ended when we look."""
    from torch._C._distributed_c10d import _dump_fr_trace_json, _reset_fr_trace

    group = dist.new_group(timeout=timedelta(seconds=30))
    _reset_fr_trace("bluefog")
    x = torch.ones(4)
    dist.all_reduce(x, group=group)
    dist.all_reduce(x, group=group, async_op=True).wait()
    dist.broadcast(x, 0, group=group)
    c10d.all_gather_single(torch.ones(4 * world), x, group=group)
    dist.barrier(group=group)
    hangs = dist.all_reduce(x, group=group, async_op=True) if rank != 1 else None
    inrank.meet("looked", world)
    entries = json.loads(_dump_fr_trace_json(backend="bluefog"))["entries"]
    inrank.meet("has looked", world)
    if hangs is None:
        dist.all_reduce(x, group=group)
    else:
        hangs.wait()
    dist.destroy_process_group(group)
    return [(e["profiling_name"], e["state"], "duration_ms" in e) for e in entries]


@since_15
def test_torchs_flight_recorder_knows_what_hangs() -> None:
    names = ["all_reduce", "all_reduce", "broadcast", "_all_gather_base", "barrier", "all_reduce"]
    for rank, entries in enumerate(harness.run_ranks(recorded, 4)):
        assert [name.split(":")[0] for name, *_ in entries] == ["bluefog"] * len(entries), entries
        states = [state for _, state, _ in entries]
        ended = states if rank == 1 else states[:-1]
        assert set(ended) == {"completed"}, entries
        assert len(ended) == len(names) - 1, entries
        if rank != 1:
            assert states[-1] in ("scheduled", "started"), entries


def has_nan(rank: int, world: int) -> inrank.Raised | None:
    group = dist.new_group(timeout=timedelta(seconds=20))
    dist.all_reduce(torch.ones(3), group=group)
    x = torch.tensor([1.0, float("nan")])
    error = inrank.catch(dist.all_reduce, x, group=group)
    dist.destroy_process_group(group)
    return error


@since_14
def test_torchs_check_for_nan() -> None:
    for error in harness.run_ranks(has_nan, 2, env={"TORCH_DIST_NAN_CHECK": "1"}):
        assert "NaN" in harness.raised(error, "RuntimeError").text
