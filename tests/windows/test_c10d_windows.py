"""Ranks put into the tensors of c10d's windows, at any offset, and signals say when."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import c10d_windows as windows
from tests.support import harness, inrank
from tests.support.c10d_windows import around

pytestmark = [pytest.mark.mpi, windows.NEEDED]

FEW = (torch.bfloat16, torch.float64, torch.bool, torch.complex64, torch.uint8, torch.float8_e5m2)


def in_a_ring(rank: int, world: int, dtype: torch.dtype, count: int) -> None:
    """Put to the next rank, signal it, and find what the one before has put, ten times."""
    after, before = around(rank, world)
    for put_async, signal_async, at_once in itertools.product([True, False], repeat=3):
        x = torch.ones(count * world, dtype=dtype)
        window = windows.made(x if at_once else None)
        if not at_once:
            window.tensor_register(x)
        mine = slice(rank * count, (rank + 1) * count)
        for turn in range(10):
            values = torch.full((count,), (rank + turn) % 2, dtype=dtype)
            window.put(values, after, after * count, put_async).wait()
            window.signal(after, signal_async).wait()
            window.wait_signal(before, signal_async).wait()
            wanted = torch.full((count,), (before + turn) % 2, dtype=dtype)
            assert x[mine].view(torch.uint8).equal(wanted.view(torch.uint8)), (turn, x[mine])
            window.signal(before, False)  # The next put may come.
            window.wait_signal(after, False)
        x[mine] = torch.ones(count, dtype=dtype)
        same = x.view(torch.uint8).equal(torch.ones_like(x).view(torch.uint8))
        assert same, "a put went elsewhere"
        window.tensor_deregister()


@pytest.mark.parametrize("count", [4, 1024, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8], ids=str)
def test_puts_in_a_ring(pool: harness.Pool, dtype: torch.dtype, count: int) -> None:
    pool.run(in_a_ring, dtype, count)


@pytest.mark.parametrize("dtype", FEW, ids=str)
def test_other_types(pool: harness.Pool, dtype: torch.dtype) -> None:
    pool.run(in_a_ring, dtype, 33, world=3)


def mapped(rank: int, world: int, dtype: torch.dtype) -> None:
    """The owner reads what a peer writes through the mapping, and the other way around."""
    after, before = around(rank, world)
    x = torch.arange(3 * (rank + 1)).reshape(3, rank + 1).to(dtype)
    window = windows.made(x)
    theirs = window.map_remote_tensor(after)
    again = window.map_remote_tensor(after)
    assert theirs.dtype == dtype
    assert list(theirs.shape) == [3, after + 1]
    assert theirs.equal(torch.arange(theirs.numel()).reshape(theirs.shape).to(dtype))
    own = window.map_remote_tensor(rank)
    assert own.data_ptr() == x.data_ptr()
    dist.barrier()
    theirs[2] = 50 + rank
    window.signal(after, False)
    window.wait_signal(before, False)
    assert x[2].eq(50 + before).all(), x
    assert own[2].eq(50 + before).all(), own
    dist.barrier()
    x[0] = 60 + rank  # The owner calls nothing.
    inrank.meet(f"written {dtype}", world)
    assert again[0].eq(60 + after).all(), again
    window.tensor_deregister()
    del window
    gc.collect()
    theirs[1] = 70 + rank  # The memory stays, and is the owner's as long as its tensor lives.
    inrank.meet(f"after the end {dtype}", world)
    assert x[1].eq(70 + before).all(), x
    inrank.meet(f"looked {dtype}", world)


@windows.ON_ONE_HOST
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16], ids=str)
def test_a_mapping_is_the_peers_memory(pool: harness.Pool, dtype: torch.dtype) -> None:
    pool.run(mapped, dtype)


def attributes(rank: int, world: int) -> list[Any]:
    window = windows.made(torch.zeros(2))
    names = [window.get_attr(peer).access_type.name for peer in range(world)]
    errors = [inrank.catch(window.map_remote_tensor, peer) for peer in range(world)]
    window.tensor_deregister()
    return [dist._supports_window(), names, errors]


def test_attributes_say_whose_memory_can_be_mapped(pool: harness.Pool) -> None:
    for rank, (supported, names, errors) in enumerate(pool.run(attributes)):
        assert supported
        for peer, (name, error) in enumerate(zip(names, errors, strict=True)):
            if peer == rank or not harness.TRANSPORT:
                assert (name, error) == ("UNIFIED", None)
            else:
                assert name == "SEPARATE"
                harness.raised(error, "RuntimeError", text=f"rank {peer} is on another host")


def into_views(rank: int, world: int) -> None:
    """Sizes may differ, the window may be a part of a storage, and tensors need not be dense."""
    after, before = around(rank, world)
    base = torch.zeros(100)
    window = windows.made(base[10 : 20 + rank])
    window.put(torch.full((3,), 1.0 + rank), after, 9 + after - 2, False)
    window.put(torch.arange(8.0).reshape(2, 4).t()[1:3], after, 1, False)  # It is not contiguous.
    window.put(torch.empty(0), after, 10 + after, False)
    window.signal(after, False)
    window.wait_signal(before, False)
    wanted = torch.zeros(100)
    wanted[11:15] = torch.tensor([1.0, 5.0, 2.0, 6.0])
    wanted[10 + 7 + rank : 20 + rank] = 1.0 + before
    assert base.equal(wanted), base
    window.tensor_deregister()
    empty = windows.made(torch.empty(0, 5) if rank == 0 else torch.zeros(2, 5))
    if windows.is_mapped(empty, 0):
        assert list(empty.map_remote_tensor(0).shape) == [0, 5]
    empty.tensor_deregister()


def test_offsets_sizes_and_views(pool: harness.Pool) -> None:
    pool.run(into_views)


def to_itself(rank: int, world: int) -> None:
    x = torch.arange(10.0)
    window = windows.made(x)
    window.put(x[:8], rank, 2, False)  # It overlaps with where it goes.
    assert x.tolist() == [0, 1, *range(8)], x
    for _ in range(2):
        window.signal(rank, False)
    for _ in range(2):
        window.wait_signal(rank, False)
    error = inrank.catch(window.wait_signal, rank, False, windows.within(0.05))
    harness.raised(error, "CollectiveTimeout", ranks=[rank])
    window.tensor_deregister()


@pytest.mark.parametrize("world", [1, 3])
def test_a_rank_reaches_itself(pool: harness.Pool, world: int) -> None:
    pool.run(to_itself, world=world)


def counted(rank: int, world: int) -> list[Any]:
    """Three signals end three waits; a wait that fails or is dropped takes none."""
    after, before = around(rank, world)
    window = windows.made(torch.zeros(1))
    begun = time.monotonic()
    error = inrank.catch(window.wait_signal, before, False, windows.within(0.2))
    waited = time.monotonic() - begun
    late = window.wait_signal(before, True, windows.within(0.05))
    dropped = window.wait_signal(before, True)
    del dropped
    time.sleep(0.1)
    assert late.is_completed(), "its deadline has passed"
    late_error = inrank.catch(late.wait)
    dist.barrier()
    for _ in range(3):
        window.signal(after, False)
    dist.barrier()
    first = window.wait_signal(before, True)
    second = window.wait_signal(before, True)
    window.wait_signal(before, False)
    done = [first.is_completed(), second.is_completed()]
    fourth = inrank.catch(window.wait_signal, before, False, windows.within(0.05))
    third = window.wait_signal(before, True)
    done.append(third.is_completed())
    dist.barrier()
    window.signal(after, False)
    third.wait()
    dropped = window.wait_signal(before, True)
    dist.barrier()
    window.signal(after, False)
    dist.barrier()
    del dropped  # Nobody has looked at it since the signal came.
    window.wait_signal(before, False)
    window.tensor_deregister()
    return [waited, error, late_error, fourth, done]


def test_signals_are_counted(pool: harness.Pool) -> None:
    for rank, (waited, *errors, done) in enumerate(pool.run(counted)):
        assert 0.2 <= waited < 0.2 + harness.WITHIN
        for error in errors:
            text = f"[bluefog] rank {rank}/4 Window.wait_signal: timeout after 0."
            harness.raised(error, "CollectiveTimeout", ranks=[(rank - 1) % 4], text=text)
        assert done == [True, True, False]


def in_order(rank: int, world: int) -> None:
    """The wait that began first gets the first signal, whichever is looked at."""
    after, before = around(rank, world)
    window = windows.made(torch.zeros(1))
    first, second = (window.wait_signal(before, True) for _ in range(2))
    window.signal(after, False)
    dist.barrier()
    assert not second.is_completed()
    assert first.is_completed()
    dist.barrier()
    window.signal(after, False)
    second.wait()
    window.tensor_deregister()


def test_waits_get_signals_in_their_order(pool: harness.Pool) -> None:
    pool.run(in_order)


def under_load(rank: int, world: int, rounds: int) -> None:
    """A signal neither gets lost nor comes before the data of the put before it."""
    after, before = around(rank, world)
    x = torch.zeros(2, 700, dtype=torch.int64)
    window = windows.made(x)
    values, bad = torch.empty(700, dtype=torch.int64), 0
    for turn in range(rounds):
        if turn >= 2:
            window.wait_signal(after, False)  # That half may be written again.
        work = window.put(values.fill_(turn + 1), after, turn % 2 * 700, turn % 3 == 0)
        window.signal(after, turn % 5 == 0)
        window.wait_signal(before, False)
        bad += int(x[turn % 2].ne(turn + 1).any())
        work.wait()
        window.signal(before, False)
    for _ in range(2):
        window.wait_signal(after, False)
    assert not bad, f"{bad} of {rounds} signals came before their data"
    window.tensor_deregister()


@pytest.mark.slow
def test_ten_thousand_rounds(pool: harness.Pool) -> None:
    pool.run(under_load, 1000 if harness.TRANSPORT else 10_000)


def refused(rank: int, world: int) -> dict[str, Any]:
    x = torch.zeros(4)
    window, empty = windows.made(x), windows.made()
    calls = {
        "a second tensor": lambda: window.tensor_register(x),
        "none to deregister": empty.tensor_deregister,
        "none to put to": lambda: empty.put(x, 0, 0, False),
        "none to signal": lambda: empty.signal(0, False),
        "none to wait for": lambda: empty.wait_signal(0, False),
        "none to map": lambda: empty.map_remote_tensor(0),
        "no rank": lambda: window.put(x, world, 0, False),
        "no rank to signal": lambda: window.signal(-1, False),
        "no rank to wait for": lambda: window.wait_signal(world, False),
        "no rank to map": lambda: window.map_remote_tensor(world),
        "no rank to ask of": lambda: window.get_attr(world),
        "too far": lambda: window.put(x, 0, 1, False),
        "before it": lambda: window.put(x, 0, -1, False),
        "beyond all": lambda: window.put(x[:1], 0, (1 << 63) - 1, False),
        "another type": lambda: window.put(x.double(), 0, 0, False),
        "another device": lambda: window.put(x.to("meta"), 0, 0, False),
        "sparse": lambda: window.put(x.to_sparse(), 0, 0, False),
        "not contiguous": lambda: windows.made(torch.zeros(2, 3).t()),
        "on another device": lambda: windows.made(torch.zeros(2, device="meta")),
        "expanded": lambda: windows.made(torch.zeros(1).expand(4)),
        "a sparse window": lambda: windows.made(x.to_sparse()),
        "conjugated": lambda: windows.made(torch.zeros(2, dtype=torch.complex64).conj()),
        "resized": lambda: x.detach().resize_(50),
    }
    told = {label: inrank.catch(call) for label, call in calls.items()}
    window.put(torch.ones(4), around(rank, world)[0], 0, False)
    dist.barrier()
    assert x.eq(1).all(), x
    window.tensor_deregister()
    told["deregistered"] = inrank.catch(window.put, x, 0, 0, False)
    window.tensor_register(torch.zeros(2, dtype=torch.int32))
    window.tensor_deregister()
    return told


def test_bad_calls_are_refused_in_the_caller(pool: harness.Pool) -> None:
    states = {"a second tensor", "deregistered", "resized"}
    for rank, told in enumerate(pool.run(refused)):
        for label, error in told.items():
            is_state = label in states or label.startswith("none to")
            harness.raised(error, "RuntimeError" if is_state else "ValueError")
            if label != "resized":
                assert error.text.startswith(f"[bluefog] rank {rank}/4 Window."), error.text
        assert "call tensor_deregister() on all ranks first" in told["a second tensor"].text
        assert "bluefog_pg.Window" in told["on another device"].text
        assert "3 elements" not in told["too far"].text
        assert "4 elements from offset 1 exceed the 4 elements" in told["too far"].text


def disagreeing(rank: int, world: int) -> list[Any]:
    """One rank's tensor cannot be registered, or has another type; then all is well."""
    errors = [
        inrank.catch(windows.made, torch.zeros(2, 2).t() if rank == 1 else torch.zeros(4)),
        inrank.catch(windows.made, torch.zeros(2, dtype=torch.int32 if rank == 2 else None)),
    ]
    a, b = windows.made(torch.zeros(2)), windows.made(torch.zeros(2))
    errors.append(inrank.catch(a.tensor_deregister if rank == 0 else b.tensor_deregister))
    errors.append(
        inrank.catch(a.tensor_deregister if rank == 0 else lambda: windows.made(torch.zeros(2)))
    )
    for window in (a, b):
        window.signal(around(rank, world)[0], False)
        window.wait_signal(around(rank, world)[1], False)
        window.tensor_deregister()
    return errors


def test_ranks_register_together_or_none_does(pool: harness.Pool) -> None:
    for rank, (one, types, crossed, other) in enumerate(pool.run(disagreeing)):
        text = "not contiguous" if rank == 1 else "rank 1 could not register their tensor"
        harness.raised(one, "ValueError" if rank == 1 else "RuntimeError", text=text)
        harness.raised(types, "Mismatch", text="int32")
        harness.raised(crossed, "Mismatch", text="another window's tensor than rank 0")
        harness.raised(other, "Mismatch", text="another window's tensor than rank 0")


def several(rank: int, world: int) -> None:
    """Several windows go on at once, of whole groups and of parts, and end in another order."""
    after, before = around(rank, world)
    tensors = [torch.zeros(5) for _ in range(4)]
    made = [windows.made(tensor) for tensor in tensors]
    both = windows.made(tensors[0])  # A tensor may be in two windows.
    pair = dist.new_group([1, 3])
    inner = windows.made(torch.zeros(1), pair) if rank in (1, 3) else None
    for number, window in enumerate(made):
        window.put(torch.full((5,), 10.0 * number + rank), after, 0, False)
    for window in reversed(made):
        window.signal(after, False)
    for window in made:
        window.wait_signal(before, False)
    for number, tensor in enumerate(tensors):
        assert tensor.eq(10.0 * number + before).all(), tensors
    error = inrank.catch(both.wait_signal, before, False, windows.within(0.05))
    harness.raised(error, "CollectiveTimeout")  # The signals were for the others.
    if inner is not None:
        inner.signal(1 - (rank == 3), False)  # Ranks are those of the group.
        inner.wait_signal(1 - (rank == 3), False)
        error = inrank.catch(inner.wait_signal, 1 - (rank == 3), False, windows.within(0.05))
        harness.raised(error, "CollectiveTimeout", ranks=[4 - rank])
        inner.tensor_deregister()
    dist.barrier()
    made[2].tensor_deregister()
    both.put(torch.ones(5), after, 0, False)
    dist.barrier()
    assert tensors[0].eq(1).all(), tensors[0]
    for window in (both, made[0], made[3], made[1]):
        window.tensor_deregister()
    if rank in (1, 3):
        dist.destroy_process_group(pair)


def test_several_windows(pool: harness.Pool) -> None:
    pool.run(several)


def dropped(rank: int, world: int) -> None:
    """A window that is dropped is gone for the others, and its memory is free again."""
    after, before = around(rank, world)
    for _ in range(3):
        window = windows.made(torch.zeros(5))
        dist.barrier()
        if rank == 1:
            del window
        dist.barrier()
        if rank != 1:
            errors = [
                inrank.catch(window.put, torch.zeros(1), 1, 0, False),
                inrank.catch(window.signal, 1, False),
            ]
            for error in errors:
                harness.raised(error, "Mismatch", ranks=[1], text="no such window any more")
        dist.barrier()
    before_all = inrank.rss()
    for turn in range(40):
        window = windows.made(torch.ones(2 << 20))
        window.put(torch.full((1000,), float(turn)), after, 0, False)
        window.signal(after, False)
        window.wait_signal(before, False)
        work = window.wait_signal(before, True)
        dist.barrier()
        del window
        del work
    grown = inrank.rss() - before_all
    assert grown < 8 * (8 << 20), f"40 windows of 8 MiB have left {grown >> 20} MiB"


def test_a_dropped_window_frees_its_memory(pool: harness.Pool) -> None:
    pool.run(dropped)


def deregistered_under_threads(rank: int, world: int) -> list[str]:
    """Threads that put and wait when their rank deregisters raise, and nothing else happens."""
    told: list[str] = []
    for _ in range(10):
        x = torch.zeros(1000)
        window = windows.made(x)
        after, before = around(rank, world)

        def puts(window: Any = window, after: int = after) -> None:
            while not (error := inrank.catch(window.put, torch.ones(1000), after, 0, False)):
                pass
            told.append(error.text)

        def waits(window: Any = window, before: int = before) -> None:
            error = inrank.catch(window.wait_signal, before, False)
            told.append(error.text if error else "a signal")

        threads = [threading.Thread(target=body) for body in (puts, waits)]
        for thread in threads:
            thread.start()
        time.sleep(0.005)
        window.tensor_deregister()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    return told


def test_threads_hear_of_the_end(pool: harness.Pool) -> None:
    for told in pool.run(deregistered_under_threads, world=2):
        assert len(told) == 20
        for text in told:
            assert "deregistered" in text or "no tensor is registered" in text, text


def interrupted(rank: int, world: int) -> None:
    """Ctrl-C ends a wait, which has taken no signal then."""
    after, before = around(rank, world)
    window = windows.made(torch.zeros(1))
    with inrank.interrupted_in(0.2):
        error = inrank.catch(window.wait_signal, before, False)
    harness.raised(error, "KeyboardInterrupt")
    dist.barrier()
    window.signal(after, False)
    window.wait_signal(before, False)
    window.tensor_deregister()


def test_ctrl_c_ends_a_wait(pool: harness.Pool) -> None:
    pool.run(interrupted)


def beside_collectives(rank: int, world: int) -> None:
    """Asynchronous collectives go on while a rank waits for a signal."""
    window = windows.made(torch.zeros(1))
    x = torch.ones(1 << 20)
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        window.wait_signal(1, False)
    else:
        work.wait()
        if rank == 1:
            window.signal(0, False)
    work.wait()
    assert x.eq(world).all()
    window.tensor_deregister()


def test_collectives_go_on_beside_a_wait(pool: harness.Pool) -> None:
    pool.run(beside_collectives)


def forked(rank: int, world: int) -> None:
    """A forked child has no part in its parent's windows, and does them no harm."""
    x = torch.full((5,), float(rank))
    window = windows.made(x)
    theirs = window.map_remote_tensor((rank + 1) % world)
    work = window.wait_signal((rank + 1) % world, True)
    child = os.fork()
    if child == 0:
        errors = [
            inrank.catch(window.put, x, 0, 0, False),
            inrank.catch(window.signal, 0, False),
            inrank.catch(window.tensor_deregister),
            inrank.catch(work.is_completed),
        ]
        is_well = all(error is not None and "forked" in error.text for error in errors)
        is_well &= bool(theirs.eq((rank + 1) % world).all())
        del window, work, theirs
        gc.collect()
        os._exit(0 if is_well else 1)
    assert os.waitpid(child, 0)[1] == 0
    window.signal((rank - 1) % world, False)
    work.wait()
    window.tensor_deregister()


@windows.ON_ONE_HOST
def test_a_forked_child_has_no_part(pool: harness.Pool) -> None:
    pool.run(forked)


def outlived(rank: int, world: int) -> list[Any]:
    """The group ends before its window, whose calls raise; its mappings stay."""
    x = torch.full((5,), float(rank))
    window = windows.made(x)
    theirs = window.map_remote_tensor(1 - rank) if windows.is_mapped(window, 1 - rank) else None
    work = window.wait_signal(1 - rank, True)
    dist.barrier()
    dist.destroy_process_group()
    errors = [
        inrank.catch(window.put, torch.zeros(5), 1 - rank, 0, False),
        inrank.catch(window.signal, 1 - rank, False),
        inrank.catch(window.wait_signal, 1 - rank, False),
        inrank.catch(window.tensor_deregister),
        inrank.catch(work.wait),
    ]
    del window, work
    assert theirs is None or theirs.eq(1 - rank).all(), theirs
    inrank.meet("looked", world)  # The owner's tensor lives until then.
    return errors


def test_a_window_outlives_its_group() -> None:
    for errors in harness.run_ranks(outlived, 2):
        for error in errors:
            harness.raised(error, "RuntimeError", text="the group has ended")
