"""Collectives that have a name match by it, in whatever order ranks begin them."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import harness, inrank

NAMES = ("a", "b", "c")


def orders(rank: int) -> list[str]:
    """Return the names in an order that differs by rank."""
    return [NAMES[(rank + k) % 3] for k in range(3)]


def begun_in_unlike_orders(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf

    bf.init()
    mean = (world - 1) / 2
    kinds: dict[str, Any] = {
        "mean": (lambda x, n: bf.allreduce_nonblocking(x, name=n), mean),
        "sum": (lambda x, n: bf.allreduce_nonblocking(x, False, name=n), mean * world),
        "in place": (lambda x, n: bf.allreduce_nonblocking_(x, name=n), mean),
        "broadcast": (lambda x, n: bf.broadcast_nonblocking(x, 1, n), 1.0),
        "broadcast in place": (lambda x, n: bf.broadcast_nonblocking_(x, 1, n), 1.0),
    }
    for kind, (begin, want) in kinds.items():
        for dtype in (torch.float32, torch.float64, torch.int64):
            if dtype == torch.int64 and kind in ("mean", "in place"):
                continue
            xs = {
                name: torch.full((k + 2,), rank * 10**k, dtype=dtype)
                for k, name in enumerate(NAMES)
            }
            handles = {name: begin(xs[name], name) for name in orders(rank)}
            for k, name in enumerate(NAMES):
                got = bf.synchronize(handles[name])
                assert torch.equal(got, torch.full((k + 2,), want * 10**k, dtype=dtype)), (
                    kind,
                    got,
                )
                assert (got is xs[name]) == ("in place" in kind)
    rows = {name: torch.full((rank + k, 2), rank * 10.0**k) for k, name in enumerate(NAMES)}
    handles = {name: bf.allgather_nonblocking(rows[name], name) for name in orders(rank)}
    for k, name in enumerate(NAMES):
        want_rows = torch.cat([torch.full((r + k, 2), r * 10.0**k) for r in range(world)])
        assert torch.equal(bf.synchronize(handles[name]), want_rows)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_each_has_its_own_result(pool: harness.Pool, world: int) -> None:
    pool.run(begun_in_unlike_orders, world=world)


def blocking(rank: int, world: int) -> None:
    """A rank may wait at once for what others have only begun."""
    import bluefog_pg.torch as bf

    bf.init()
    x, y = torch.tensor([float(rank)]), torch.tensor([100.0 * rank])
    if rank == 0:
        first = bf.allreduce_nonblocking(x, name="x")
        assert bf.allreduce(y, name="y").item() == 50.0 * (world - 1)
        assert bf.synchronize(first).item() == (world - 1) / 2
    else:
        second = bf.allreduce_nonblocking(y, name="y")
        assert bf.allreduce(x, name="x").item() == (world - 1) / 2
        assert bf.synchronize(second).item() == 50.0 * (world - 1)
    place = torch.tensor(rank)
    assert bf.allreduce_(place, average=False, name="z") is place
    assert place.item() == world * (world - 1) // 2
    assert bf.broadcast_(place.fill_(rank), world - 1, "z").item() == world - 1
    assert bf.allgather(torch.tensor([rank]), "z").tolist() == list(range(world))


@pytest.mark.parametrize("world", [1, 2, 4])
def test_blocking_ones_meet_nonblocking_ones(pool: harness.Pool, world: int) -> None:
    pool.run(blocking, world=world)


def went_backward(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf

    bf.init()
    weights = torch.arange(1.0, 1.0 + world)

    def grad(op: Any, *args: Any, **options: Any) -> Tensor:
        x = torch.full((2,), float(rank), requires_grad=True)
        result = op(x, *args, **options)
        (result * weights[rank]).sum().backward()
        assert x.grad is not None
        return x.grad

    both = {}
    for name in (None, "n"):
        both[name] = [
            grad(bf.allreduce, name=name),
            grad(bf.allreduce, average=False, name=name),
            grad(bf.broadcast, 1, name=name),
            grad(bf.allgather, name=name),
        ]
    for plain, named in zip(both[None], both["n"], strict=True):
        assert torch.allclose(plain, named), (plain, named)


def test_gradients_are_those_without_a_name(pool: harness.Pool) -> None:
    pool.run(went_backward, world=3)


def refused(rank: int, world: int) -> list[Any]:
    import bluefog_pg.torch as bf

    bf.init()
    x = torch.ones(2)
    told = [
        inrank.catch(bf.allreduce, torch.ones(2, dtype=torch.int32), name="m"),
        inrank.catch(bf.broadcast, x, world, "m"),
        inrank.catch(bf.allgather, torch.tensor(1.0), "m"),
        inrank.catch(bf.allreduce, torch.ones(rank + 1), name="m"),
        inrank.catch(bf.broadcast, x, rank, "m"),
        inrank.catch(bf.broadcast, torch.ones(2, requires_grad=True), rank, "m"),
        inrank.catch(bf.allreduce, [1.0], name="m"),
        inrank.catch(bf.allreduce_, [1.0], name="m"),
        inrank.catch(bf.broadcast, x, "a", "m"),
    ]
    for begin in (
        lambda t: bf.allreduce_nonblocking(t, name="m"),
        lambda t: bf.broadcast_nonblocking(t, 1, "m"),
        lambda t: bf.allgather_nonblocking(t, "m"),
    ):
        assert not bf.synchronize(begin(torch.ones(2, requires_grad=True))).requires_grad
    assert bf.allreduce(x, name="m").tolist() == [1.0, 1.0]
    return told


def failed(rank: int, world: int) -> list[Any]:
    import bluefog_pg.torch as bf

    bf.init()
    x = torch.ones(2 + rank)
    calls: dict[str, Any] = {
        "allreduce.m": lambda: bf.allreduce(x, name="m"),
        "allreduce.n": lambda: bf.synchronize(bf.allreduce_nonblocking(x, name="n")),
        "allreduce.o": lambda: bf.allreduce(x.long(), False, name="o"),
        "allgather.m": lambda: bf.synchronize(bf.allgather_nonblocking(x.view(1, -1), "m")),
        "broadcast.m": lambda: bf.broadcast(x, 0, "m"),
        "neighbor.allreduce.m": lambda: bf.neighbor_allreduce(x, name="m"),
    }
    return [(name, inrank.catch(call)) for name, call in calls.items()]


def test_errors_say_what_the_program_called(pool: harness.Pool) -> None:
    for rank, told in enumerate(pool.run(failed, world=2)):
        for name, error in told:
            assert error.kind == "Mismatch"
            assert error.text.startswith(f"[bluefog] rank {rank}/2 {name} ("), error.text


def test_what_is_refused(pool: harness.Pool) -> None:
    kinds = ["ArgumentError", "ValueError", "ValueError", "Mismatch", "Mismatch", "Mismatch"]
    kinds += ["TypeError"] * 3
    for told in pool.run(refused, world=2):
        assert [each.kind for each in told] == kinds, told
        assert all(each.text.startswith("[bluefog] rank") for each in told), told


def local_sums(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf

    bf.init()
    machine = [0, 1] if rank < 2 else [2, 3]
    x = torch.tensor([float(rank)])
    assert bf.allreduce(x, True, True, "l").item() == sum(machine) / 2
    assert bf.allreduce(x, False, is_hierarchical_local=True, name="l").item() == sum(machine)


def test_sums_of_a_machine() -> None:
    with harness.Ranks(4, env={"BLUEFOG_NODES_PER_MACHINE": "2"}) as ranks:
        ranks.start(local_sums)
        ranks.values()


def finished_before(rank: int, world: int) -> None:
    """Operations that began before a barrier, windows' too, have ended when it returns."""
    import bluefog_pg.torch as bf

    bf.init()
    bf.win_create(torch.ones(5), "w")
    for k in range(50):
        handles = [
            bf.neighbor_allreduce_nonblocking(torch.ones(1000), name=f"{k}.{n}") for n in "ab"
        ]
        put = bf.win_put_nonblocking(torch.ones(5), "w")
        bf.barrier()
        assert all(bf.poll(handle) for handle in handles)
        assert bf.win_poll(put)
        for handle in handles:
            bf.synchronize(handle)
        bf.win_wait(put)
    bf.win_free()


def read_and_written_when(rank: int, world: int) -> None:
    """An operation has read its tensor when it has begun, and written to it when it has ended."""
    import bluefog_pg.torch as bf

    bf.init()
    total = world * (world + 1) / 2
    for size in (3, 300_000):
        for begin, want in (
            (lambda t: bf.allreduce_nonblocking(t, False, name="r"), [total]),
            (lambda t: bf.broadcast_nonblocking(t, 1, "r"), [2.0]),
            (lambda t: bf.allgather_nonblocking(t, "r"), [float(r + 1) for r in range(world)]),
        ):
            for dtype in (torch.float32, torch.int64):
                x = torch.full((size,), rank + 1, dtype=dtype)
                bf.barrier()
                if rank == world - 1:
                    time.sleep(0.02)
                handle = begin(x)
                x.fill_(100)
                got = bf.synchronize(handle).view(len(want), size)
                assert got[:, 0].tolist() == got[:, -1].tolist() == want
        for waits in ("polls", "barrier"):
            for dtype in (torch.float32, torch.int64):
                x = torch.full((size,), rank + 1, dtype=dtype)
                handle = bf.allreduce_nonblocking_(x, False, name="w")
                if waits == "barrier":
                    bf.barrier()
                while not bf.poll(handle):
                    assert waits == "polls"
                    time.sleep(0.001)
                assert x.eq(total).all()
                assert bf.synchronize(handle) is x


def test_tensors_are_read_and_written_in_time(pool: harness.Pool) -> None:
    pool.run(read_and_written_when, world=3)


def begun_on_both_sides(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf

    bf.init()
    x, handles = torch.full((2,), float(rank)), []
    for begin in (
        lambda: bf.neighbor_allreduce_nonblocking(x, name="q"),
        lambda: bf.allreduce_nonblocking(x, name="q"),
    ):
        if rank == 0:
            handles.append(begin())
        bf.barrier()
        if rank != 0:
            handles.append(begin())
    for handle in handles:
        assert bf.synchronize(handle).tolist() == [(world - 1) / 2] * 2


def test_operations_may_begin_on_both_sides_of_a_barrier(pool: harness.Pool) -> None:
    pool.run(begun_on_both_sides, world=3)


def some_require_gradients(rank: int, world: int) -> None:
    """The pattern of messages is one, whether a rank wants gradients or not."""
    import bluefog_pg.torch as bf

    bf.init()
    for root in range(world):
        for asking in range(world):
            x = torch.full((2,), float(rank), requires_grad=rank == asking)
            assert bf.broadcast(x, root, "s").tolist() == [float(root)] * 2
            assert bf.allgather(x, "s").tolist() == [float(r) for r in range(world) for _ in "ab"]
            assert bf.allreduce(x, name="s").tolist() == [(world - 1) / 2] * 2


def test_ranks_may_differ_in_gradients(pool: harness.Pool) -> None:
    pool.run(some_require_gradients, world=3)


def test_a_barrier_waits_for_what_began_before(pool: harness.Pool) -> None:
    pool.run(finished_before, world=4)
