"""Nonblocking operations of bluefog_pg.torch have handles, with names, errors and interrupts."""

from __future__ import annotations

import time
from typing import Any

import torch

from tests.support import harness, inrank


def pending(rank: int, world: int) -> None:
    """Many operations are pending at once, and waited for in reverse.

    Nobody else holds their tensors.
    """
    import bluefog_pg.torch as bf
    from bluefog_pg.torch import mpi_ops

    bf.init()
    handles = []
    for i in range(20):
        x = torch.full((3000,), float(i + rank))
        handles.append(bf.neighbor_allreduce_nonblocking(x, name=f"a{i}"))
        # The kind is another one, so the name is, too.
        handles.append(bf.allreduce_nonblocking(x, name=f"a{i}"))
        handles.append(bf.allgather_nonblocking(x))
        del x
    got = [bf.synchronize(handle) for handle in reversed(handles)][::-1]
    near = (rank + (rank - 1) % world + (rank - 2) % world) / 3
    mean = (world - 1) / 2
    for i in range(20):
        averaged, reduced, rows = got[3 * i : 3 * i + 3]
        assert averaged.allclose(torch.tensor(i + near)), f"{i}: {averaged}, not {i + near}"
        assert reduced.allclose(torch.tensor(i + mean)), f"{i}: {reduced}, not {i + mean}"
        assert rows[::3000].tolist() == [float(i + r) for r in range(world)], f"{i}: {rows}"
    assert len(set(handles)) == 60, handles
    assert min(handles) > 0, handles
    kept = mpi_ops.handles._issued or mpi_ops.handles._busy
    assert not kept, kept


def test_many_pending(pool: harness.Pool) -> None:
    pool.run(pending)


def twice(rank: int, world: int) -> list[Any]:
    """A name is taken until its operation has ended, waited for or not."""
    import bluefog_pg.torch as bf

    bf.init()
    told: list[Any] = []
    if rank:
        inrank.await_file("at.issued.0")
    handles = [bf.allreduce_nonblocking(torch.ones(2), name="x")]
    if rank == 0:
        told.append(bf.poll(handles[0]))
        told.append(inrank.catch(bf.allreduce_nonblocking, torch.ones(2), name="x"))
        # This is the form of the first versions.
        told.append(inrank.catch(bf.allreduce, torch.ones(2), True, "x"))
        inrank.mark("issued")
    handles.append(bf.broadcast_nonblocking(torch.ones(2), 0, "x"))
    while not all(bf.poll(handle) for handle in handles):
        time.sleep(0.001)
    again = bf.allreduce_nonblocking(torch.ones(3, dtype=torch.float64), name="x")
    told.append([bf.synchronize(h).tolist() for h in (again, *handles)])
    # One operation after the other may have the name, each time with another type.
    for dtype in (torch.float16, torch.int32):
        told.append(bf.allreduce(torch.ones(1, dtype=dtype), False, name="x").item())
    return told


def test_one_of_a_name_at_a_time(pool: harness.Pool) -> None:
    first, *others = pool.run(twice)
    assert first[0] is False
    for error in first[1:3]:
        raised = harness.raised(error, "ValueError", text="allreduce.x")
        assert "under way" in raised.text
    for rest in (first[3:], *others):
        assert rest == [[[1.0] * 3, [1.0] * 2, [1.0] * 2], 4.0, 4]


def failing(rank: int, world: int) -> list[Any]:
    """The operation's error comes at synchronize; then the handle is gone, and its name free."""
    import bluefog_pg.torch as bf

    rows = torch.ones(2, 3 + (rank == 1))
    handle = bf.allgather_nonblocking(rows, name="x")
    error = inrank.catch(bf.synchronize, handle)
    gone = [inrank.catch(call, handle) for call in (bf.synchronize, bf.wait, bf.poll)]
    return [error, gone, bf.allgather(torch.ones(1), name="x").tolist()]


def test_errors_of_handles(pool: harness.Pool) -> None:
    for error, gone, after in pool.run(failing):
        assert 1 in harness.raised(error, "Mismatch").ranks
        assert "ValueError" in error.kinds
        for missing in gone:
            harness.raised(missing, "ValueError", text="no handle")
        assert after == [1.0] * 4


def interrupted(rank: int, world: int) -> list[Any]:
    """After Ctrl-C in a wait, a rank can wait again."""
    import _thread
    import threading

    import bluefog_pg.torch as bf

    if rank == 1:
        inrank.await_file("at.interrupted.0")
        return [None, bf.allreduce(torch.ones(1), False).item()]
    handle = bf.allreduce_nonblocking(torch.ones(1), False)
    threading.Timer(0.3, _thread.interrupt_main).start()
    error = inrank.catch(bf.synchronize, handle)
    inrank.mark("interrupted")
    return [error and error.kind, bf.synchronize(handle).item()]


def test_interrupted_wait(pool: harness.Pool) -> None:
    assert pool.run(interrupted, world=2) == [["KeyboardInterrupt", 2.0], [None, 2.0]]


def at_once(rank: int, world: int) -> None:
    """Threads issue and wait at the same time; names keep neighbor operations apart."""
    import bluefog_pg.torch as bf

    bf.init()

    def body(i: int) -> None:
        for step in range(20):
            x = torch.full((50,), float(i * 100 + step))
            handle = bf.neighbor_allreduce_nonblocking(x, name=f"thread {i}")
            got = bf.synchronize(handle)
            assert torch.equal(got, x), f"step {step}: {got}, not {x}"

    bad = inrank.in_threads(4, body)
    assert not bad, bad


def test_threads(pool: harness.Pool) -> None:
    pool.run(at_once, world=2)


def listed(rank: int, world: int) -> list[list[float]]:
    import bluefog_pg.torch as bf

    bf.init()
    xs = [torch.tensor([float(rank)]), torch.tensor([2.0 * rank])]
    both = (bf.neighbor_allreduce(xs), bf.synchronize(bf.neighbor_allreduce_nonblocking(xs)))
    return [[x.item() for x in ys] for ys in both]


def test_lists(pool: harness.Pool) -> None:
    assert pool.run(listed, world=2) == [[[0.5, 1.0]] * 2] * 2
