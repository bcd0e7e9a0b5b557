"""Work and Future keep their contract, and a pending operation blocks no other one."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank, oracle

Started = tuple[dist.Work, list[torch.Tensor]]


def every_async(rank: int, world: int) -> dict[str, Callable[[], Started]]:
    """Return, by name, functions that start a call.

    Each returns the Work, and the outputs that its future must hold.
    """

    def of(n: int) -> torch.Tensor:
        return torch.full((n,), float(rank + 1))

    def in_place(call: Any, *args: Any) -> Started:
        t = of(3)
        return call(t, *args, async_op=True), [t]

    def into(call: Any, n: int, *args: Any) -> Started:
        t = torch.empty(n)
        return call(t, *args, async_op=True), [t]

    def all_gather() -> Started:
        out = [torch.empty(3) for _ in range(world)]
        return dist.all_gather(out, of(3), async_op=True), out

    def neighbor_allreduce() -> Started:
        import bluefog_pg

        work = bluefog_pg.neighbor_allreduce(of(3), async_op=True)
        work.wait()
        return work, work.result()

    return {
        "all_reduce": lambda: in_place(dist.all_reduce),
        "broadcast": lambda: in_place(dist.broadcast, 0),
        "all_gather": all_gather,
        "all_gather_into_tensor": lambda: into(dist.all_gather_into_tensor, 3 * world, of(3)),
        "reduce_scatter": lambda: into(dist.reduce_scatter, 2, [of(2) for _ in range(world)]),
        "reduce_scatter_tensor": lambda: into(dist.reduce_scatter_tensor, 2, of(2 * world)),
        "barrier": lambda: (dist.barrier(async_op=True), []),
        "neighbor_allreduce": neighbor_allreduce,
    }


def contract(rank: int, world: int) -> None:
    wrong: dict[str, str] = {}
    for name, start in every_async(rank, world).items():
        work, outputs = start()
        end = time.monotonic() + 10 * harness.SLOW
        while not work.is_completed() and time.monotonic() < end:
            time.sleep(0.001)
        value = work.get_future().value()
        checks = {
            "completes without wait": work.is_completed(),
            "is_success": work.is_success(),
            "wait is true": work.wait() is True,
            "wait again": work.wait() is True and work.wait(timedelta(seconds=5)) is True,
            "no exception": work.exception() is None,
            "future done": work.get_future().done(),
            "future holds a list": isinstance(value, list) and len(value) == len(outputs),
            "future holds the outputs": all(map(torch.equal, value, outputs)),
            "the same memory": [v.data_ptr() for v in value] == [o.data_ptr() for o in outputs],
            "result": all(map(torch.equal, work.result(), outputs)),
        }
        failed = [k for k, fine in checks.items() if not fine]
        if failed:
            wrong[name] = f"{failed}, value {value}"
    assert not wrong, wrong


@pytest.mark.parametrize("world", [1, 4])
def test_contract_of_every_operation(pool: harness.Pool, world: int) -> None:
    pool.run(contract, world=world)


def point_to_point(rank: int, world: int) -> None:
    t = torch.full((4,), 9.0 if rank == 0 else 0.0)
    work = dist.isend(t, 1) if rank == 0 else dist.irecv(t, 0)
    value = work.get_future().wait()
    assert t.tolist() == [9.0] * 4
    assert work.is_completed()
    assert work.wait()
    assert work.wait()
    assert work.exception() is None
    if rank == 1:
        assert len(value) == 1
        assert work.result()[0].tolist() == [9.0] * 4


def test_contract_of_send_and_receive(pool: harness.Pool) -> None:
    pool.run(point_to_point, world=2)


def polled(rank: int, world: int) -> None:
    """Poll operations until they are complete, large ones too, while nobody waits for any."""
    works = [dist.all_reduce(torch.ones(n), async_op=True) for n in (1, 300_000, 2_000_000)]
    end = time.monotonic() + 20 * harness.SLOW
    while not all(w.is_completed() for w in works) and time.monotonic() < end:
        time.sleep(0.005)
    ended = [w.is_completed() for w in works]
    assert all(ended), ended


def complete_and_then_done(rank: int, world: int) -> None:
    """Ask for the future in the instant in which the operation has ended."""
    x, late = torch.ones(4), 0
    for _ in range(20_000):
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            pass
        late += not work.get_future().done()
        work.wait()
    assert late == 0, late


@pytest.mark.thorough
def test_the_future_of_what_is_complete_is_done(pool: harness.Pool) -> None:
    pool.run(complete_and_then_done, world=2)


def early_result(rank: int, world: int) -> list[Any]:
    t = torch.ones(1)
    if rank == 1:
        inrank.gate("asked")
    work = dist.all_reduce(t, async_op=True)
    early = inrank.catch(work.result) if rank == 0 else None
    inrank.mark("told")
    work.wait()
    return [early, work.result()[0].item()]


def test_there_is_no_result_before_the_end() -> None:
    with harness.Ranks(2) as ranks:
        ranks.start(early_result, world=2, store="s")
        ranks.at("told", 0)
        ranks.open("asked")
        (early, first), (_, second) = (o.value for o in ranks.join(60))
        harness.raised(early, "RuntimeError")
        assert "has not ended yet; wait() for it" in early.text
        assert first == second == 2


def test_completion_needs_no_wait(pool: harness.Pool) -> None:
    pool.run(polled)


def pending_is_incomplete(rank: int, world: int) -> list[Any]:
    if rank == 0:
        t = torch.zeros(1)
        work = dist.all_reduce(t, async_op=True)
        time.sleep(0.1)
        early = [work.is_completed(), work.get_future().done()]
        dist.send(torch.ones(1), 1)
        work.wait()
        return [*early, work.is_completed()]
    dist.recv(torch.zeros(1), 0)
    dist.all_reduce(torch.ones(1))
    return []


def test_point_to_point_passes_a_pending_collective(pool: harness.Pool) -> None:
    assert pool.run(pending_is_incomplete, world=2)[0] == [False, False, True]


def receive_then_collective(rank: int, world: int) -> list[float]:
    got, t = torch.zeros(100_000), torch.ones(100_000)
    if rank == 1:
        pending = dist.irecv(got, 0)
        dist.all_reduce(t)
        pending.wait()
    else:
        dist.all_reduce(t)
        if rank == 0:
            dist.send(torch.full((100_000,), 5.0), 1)
    return [got[-1].item(), t[-1].item()]


def test_collective_passes_a_pending_receive(pool: harness.Pool) -> None:
    assert pool.run(receive_then_collective, world=3) == [[0, 3], [5, 3], [0, 3]]


def opposite_orders(rank: int, world: int, blocking: bool) -> list[float]:
    a, b = dist.new_group(), dist.new_group()
    got = []
    for n in (1, 400_000):
        x, y = torch.ones(n), torch.full((n,), 2.0)
        first, second = [(a, x), (b, y)][:: -1 if rank % 2 else 1]
        works = [dist.all_reduce(first[1], group=first[0], async_op=True)]
        if blocking and rank % 2 == 0:
            works.append(dist.all_reduce(second[1], group=second[0], async_op=True))
        elif blocking:
            dist.all_reduce(second[1], group=second[0])
        else:
            works.append(dist.all_reduce(second[1], group=second[0], async_op=True))
        for work in works:
            work.wait()
        got += [x[-1].item(), y[-1].item()]
    for group in (a, b):
        dist.destroy_process_group(group)
    return got


@pytest.mark.parametrize("blocking", [False, True])
def test_two_groups_in_opposite_orders(pool: harness.Pool, blocking: bool) -> None:
    assert pool.run(opposite_orders, blocking) == [[4, 8, 4, 8]] * 4


def other_group(rank: int, world: int) -> list[float]:
    """The world's collective waits for late ranks, and a subgroup's does not wait for it."""
    group = dist.new_group([0, 1])
    t, u = torch.ones(1), torch.ones(200_000)
    if rank < 2:
        work = dist.all_reduce(t, async_op=True)
        dist.all_reduce(u, group=group)
        if rank == 0:
            dist.send(torch.zeros(1), 2)
        work.wait()
        dist.destroy_process_group(group)
    else:
        if rank == 2:
            dist.recv(torch.zeros(1), 0)
        dist.all_reduce(t)
    return [t.item(), u[-1].item()]


def test_a_pending_collective_blocks_no_other_group(pool: harness.Pool) -> None:
    assert pool.run(other_group, world=3) == [[3, 2], [3, 2], [3, 1]]


def chained(rank: int, world: int) -> list[float]:
    group = dist.new_group()
    t = torch.full((4,), float(rank + 1))
    future = dist.all_reduce(t, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2).then(lambda f: f.value() + 1).wait()
    inner: list[dist.Work] = []

    def run_another(f: torch.futures.Future[Any]) -> torch.Tensor:
        u = f.value()[0].clone()
        inner.append(dist.all_reduce(u, group=group, async_op=True))
        return u

    later = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(run_another).wait()
    inner[0].wait()

    # This callback blocks. Where it runs, nothing is held that it needs.
    def block(f: torch.futures.Future[Any]) -> float:
        v = torch.ones(70_000)
        dist.all_reduce(v, group=group)
        return v[-1].item()

    blocked = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(block).wait()
    dist.destroy_process_group(group)
    return [doubled[0].item(), later.item(), blocked]


def test_callbacks_may_run_collectives(pool: harness.Pool) -> None:
    assert pool.run(chained) == [[21.0, 16.0, 4.0]] * 4


def nested(rank: int, world: int, how: str) -> list[Any]:
    """On completion, run one more collective of the group and wait, as powerSGD's hook does."""

    def again(f: torch.futures.Future[Any]) -> float:
        t = f.value()[0] + rank
        return float(dist.all_reduce(t, async_op=True).get_future().wait()[0][-1])

    got: list[Any] = []
    # The other ranks attach the callback while the call is pending.
    for late, n in ((0, 1), (world - 1, 300_000)):
        if rank == late:
            for r in set(range(world)) - {late}:
                inrank.await_file(f"at.{how}.{n}.{r}", 10)
            time.sleep(0.05)
        work = dist.all_reduce(torch.full((n,), float(rank + 1)), async_op=True)
        later = work.get_future().then(again)
        inrank.mark(f"{how}.{n}")
        if how == "waits":
            work.wait()
        end = time.monotonic() + 8 * harness.SLOW
        while not later.done() and time.monotonic() < end:
            time.sleep(0.002)
        got.append(later.value() if later.done() else "never")
    return got


@pytest.mark.parametrize("how", ["polls", "waits"])
def test_a_callback_may_wait_for_a_collective_of_its_own_group(
    pool: harness.Pool, how: str
) -> None:
    assert pool.run(nested, how, world=3, timeout=20) == [[21.0, 21.0]] * 3


def asked_for_as_it_ends(_rank: int, _world: int) -> float:
    """Ask at any moment for a future whose callback waits for another operation."""

    def again(_future: Any) -> Any:
        return dist.all_reduce(torch.ones(4), async_op=True).get_future().wait()[0]

    total = 0.0
    for _ in range(10_000):
        future = dist.all_reduce(torch.ones(8), async_op=True).get_future()
        total += float(future.then(again).wait()[0])
    return total


@pytest.mark.slow
def test_a_future_asked_for_as_its_operation_ends(pool: harness.Pool) -> None:
    """A future that the driving thread completed hung in its callback, once in 60,000 times."""
    assert pool.run(asked_for_as_it_ends, world=2) == [20_000.0] * 2


def power_sgd(rank: int, world: int) -> list[Any]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks

    torch.manual_seed(rank)
    layers = [torch.nn.Linear(40, 30), torch.nn.ReLU(), torch.nn.Linear(30, 20)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    state = hooks.PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, hooks.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    for _ in range(6):
        loss = model(torch.randn(8, 40)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    return [losses, state.compression_stats()[0], oracle.digest(parameters)]


def test_ddp_with_power_sgd(pool: harness.Pool) -> None:
    told = pool.run(power_sgd, world=3, timeout=25)
    for losses, rate, digest in told:
        assert all(map(math.isfinite, losses)) and rate > 2
        assert digest == told[0][2]


def callbacks(rank: int, world: int) -> list[Any]:
    seen: list[bool] = []
    called = threading.Event()
    work = dist.all_reduce(torch.ones(1000), async_op=True)

    def done(_: Any) -> None:
        seen.append(work.is_completed())
        called.set()

    work.get_future().add_done_callback(done)
    called.wait(10)

    def boom(_: Any) -> None:
        raise ValueError("boom")

    error = inrank.catch(dist.all_reduce(torch.ones(1), async_op=True).get_future().then(boom).wait)
    many = [dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in range(5)]
    values = [f[0].item() for f in torch.futures.wait_all(many)]
    return [seen, error is not None and "boom" in error.text, values]


def test_callbacks(pool: harness.Pool) -> None:
    assert pool.run(callbacks) == [[[True], True, [4.0] * 5]] * 4


def outstanding(rank: int, world: int) -> None:
    tensors = [torch.full((i % 50 * 400,), float(i)) for i in range(500)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in reversed(works):
        work.wait()
    bad = [f"{i}: {t}" for i, t in enumerate(tensors) if not (t == i * world).all()]
    assert not bad, bad


def test_five_hundred_outstanding(pool: harness.Pool) -> None:
    pool.run(outstanding)


def kept_alive(rank: int, world: int) -> list[float]:
    """Drop tensors and works at once. The operation keeps what it needs."""
    futures = []
    for i in range(50):
        futures.append(dist.all_reduce(torch.full((20_000,), float(i)), async_op=True).get_future())
        gc.collect(0)
        torch.full((20_000,), -1.0)  # This would lie in freed memory.
    for _ in range(20):
        dist.all_reduce(torch.ones(100), async_op=True)
    last = torch.ones(1)
    dist.all_reduce(last)
    return [f.wait()[0][-1].item() for f in futures] + [last.item()]


def test_operations_keep_their_tensors(pool: harness.Pool) -> None:
    assert pool.run(kept_alive) == [[4.0 * i for i in range(50)] + [4.0]] * 4


def a_tag_each(rank: int, world: int) -> None:
    def run(tag: int) -> None:
        for j in range(50):
            t = torch.full((j * 211 % 3000 + 1,), float(100 * tag + j))
            if rank == 0:
                dist.send(t, 1, tag=tag)
            else:
                got = torch.zeros_like(t)
                dist.recv(got, 0, tag=tag)
                assert torch.equal(got, t), f"tag {tag}, round {j}: {got}, not {t}"

    bad = inrank.in_threads(6, run)
    assert not bad, bad


def test_threads_with_a_tag_each(pool: harness.Pool) -> None:
    pool.run(a_tag_each, world=2)


def foreign_wait(rank: int, world: int) -> None:
    """One thread posts, and others wait, for the same Work and while new ones are posted."""
    works = [dist.all_reduce(torch.ones(5000), async_op=True) for _ in range(50)]
    bad = inrank.in_threads(4, lambda i: [w.wait() for w in works[i % 2 :: 2]])
    assert not bad, bad


def test_several_threads_wait_for_one_work(pool: harness.Pool) -> None:
    pool.run(foreign_wait)


def ticks(rank: int, world: int) -> int:
    count, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.wait(0.005):
            count[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    if rank == 0:
        time.sleep(0.5)
    before = count[0]
    dist.all_reduce(torch.ones(1))
    during = count[0] - before
    stop.set()
    thread.join()
    return during


def test_a_wait_releases_the_interpreter(pool: harness.Pool) -> None:
    assert min(pool.run(ticks)[1:]) > 20


def short_wait(rank: int, world: int) -> list[Any]:
    if rank == 1:
        inrank.await_file("at.short.0")
        inrank.catch(dist.send, torch.ones(1), 0)
        return []
    work = dist.irecv(torch.zeros(1), 1)
    error = inrank.catch(work.wait, timedelta(milliseconds=200))
    inrank.mark("short")
    return [error]


def test_wait_with_a_short_timeout(pool: harness.Pool) -> None:
    error = harness.raised(pool.run(short_wait, world=2)[0][0], "RuntimeError")
    pool.discard()  # It is not the question what the group is good for after a timeout.
    assert 0.15 < error.took() < harness.at_most(1.2)
