"""Windows keep what is put, added and fetched, and updates use it as they should."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.windows import (
    added_and_fetched,
    bad_calls,
    near,
    push_sum,
    put_and_updated,
    random_calls,
    ring,
)

pytestmark = [pytest.mark.mpi, pytest.mark.device]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_puts_and_updates(pool: harness.Pool, world: int) -> None:
    pool.run(put_and_updated, world=world)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_accumulations_and_gets(pool: harness.Pool, world: int) -> None:
    for rank, told in enumerate(pool.run(added_and_fetched, world=world)):
        others = near(rank, world)
        slots = [float(rank + 2 * other + 1) for other in others]
        assert told == [
            True,
            dict.fromkeys(others, 2),
            slots,
            rank + sum(slots),
            rank + sum(slots),
            [50.0 * other for other in others],
        ]


def of_a_list(rank: int, world: int) -> list[Any]:
    """Put a model's parameters at once; the model's own tensors change with the window."""
    bf = ring()
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    parameters = list(model.parameters())
    with torch.no_grad():
        for i, parameter in enumerate(parameters):
            parameter.fill_(10 * i + rank)
    window = bf.Window(parameters, "model")
    dist.barrier()
    window.put()
    window.put([2 * parameter.detach() for parameter in parameters])
    dist.barrier()
    with torch.no_grad():
        window.update()
    told = [parameter.flatten()[-1].item() for parameter in parameters]
    model(torch.ones(1, 3)).sum().backward()
    window.free()
    return told


def test_a_list_is_one_window(pool: harness.Pool) -> None:
    told = pool.run(of_a_list, world=2)
    for rank in range(2):
        assert told[rank] == [(10 * i + rank + 2 * (10 * i + 1 - rank)) / 2 for i in range(4)]


def aliases(rank: int, world: int) -> list[Any]:
    """What shares the tensor's storage goes with it, and stays when the window is freed."""
    bf = ring()
    base = torch.arange(10.0)
    part = base[2:8]
    window = bf.Window(part, "w", zero_init=True)
    second = bf.Window(base[:2], "v", zero_init=True)
    base.add_(1)
    dist.barrier()
    window.get()
    second.get()
    told = [part.tolist(), window.read(1 - rank).tolist(), second.read(1 - rank).tolist()]
    window.free()
    second.free()
    base.add_(1)
    return [*told, part.tolist(), bf.torch.get_current_created_window_names()]


def test_views_are_windows_and_go_on_without_them(pool: harness.Pool) -> None:
    numbers = [float(i) for i in range(12)]
    told = [numbers[3:9], numbers[3:9], numbers[1:3], numbers[4:10], []]
    assert pool.run(aliases, world=2) == [told] * 2


def into_a_busy_target(rank: int, world: int) -> float:
    """Rank 1 computes for as long as rank 0 puts, which needs nothing of rank 1."""
    bf = ring()
    window = bf.Window(torch.zeros(1 << 18), "w", zero_init=True)
    done = inrank.directory() / "has put"
    done.unlink(missing_ok=True)
    dist.barrier()
    if rank == 1:
        end = time.monotonic() + 20
        while not done.exists():
            assert time.monotonic() < end, "rank 0 waits for rank 1"
    else:
        for _ in range(20):
            window.accumulate(torch.ones(1 << 18))
        done.touch()
    dist.barrier()
    seen = window.update_then_collect()[0].item()
    window.free()
    return seen


def test_a_busy_target_is_not_waited_for(pool: harness.Pool) -> None:
    assert pool.run(into_a_busy_target, world=2) == [0, 20]


@pytest.mark.parametrize("world", [2, 4])
def test_push_sum_loses_nothing(pool: harness.Pool, world: int) -> None:
    told = pool.run(push_sum, world=world)
    assert sum(p for _, p, _, _ in told) == pytest.approx(world, abs=1e-9)
    assert sum(x for x, _, _, _ in told) == pytest.approx(sum(range(world)), abs=1e-9)
    for _, _, is_whole, estimate in told:
        assert is_whole
        assert estimate == pytest.approx((world - 1) / 2, abs=1e-6)


def exclusive(rank: int, world: int) -> tuple[inrank.Raised | None, float]:
    """The owner holds its mutexes for a while: who asks for them waits, who does not goes on.

    Return what the owner is told when it asks once more, and when it lets go or the other's put has
    ended.
    """
    bf = ring()
    x = torch.zeros(4)
    window = bf.Window(x, "w", zero_init=True)
    dist.barrier()
    again = None
    if rank == 0:
        with window.mutex(for_self=True):
            again = inrank.catch(lambda: window.mutex(for_self=True).__enter__())
            window.update(require_mutex=True)  # This thread has them.
            dist.barrier()
            inrank.await_file("at.has put.1")
            time.sleep(0.2 * harness.SLOW)  # The other rank begins the put that waits.
            instant = time.monotonic()
    else:
        dist.barrier()
        window.put(torch.ones(4), dst_weights=[0], require_mutex=False)
        inrank.mark("has put")
        window.put(torch.ones(4), dst_weights=[0], require_mutex=True)
        instant = time.monotonic()
    dist.barrier()
    window.free()
    return again, instant


def test_mutexes(pool: harness.Pool) -> None:
    (again, released), (_, ended) = pool.run(exclusive, world=2)
    harness.raised(again, "RuntimeError", text="holds the mutex already")
    assert released <= ended < released + harness.at_most(1)


def stats(rank: int, world: int) -> list[Any]:
    bf = ring()
    window = bf.Window(torch.zeros(4), "w", zero_init=True)
    before = bf.window_stats()["w"]
    dist.barrier()
    window.put()
    window.put()
    dist.barrier()
    after = bf.window_stats()["w"]
    window.free()
    return [before, after]


def test_stats(pool: harness.Pool) -> None:
    for rank, (before, after) in enumerate(pool.run(stats, world=2)):
        peer = 1 - rank
        nothing = {"changes": 0, "version": 0, "age": math.inf, "p": 0}
        assert before == {"from": {peer: nothing}, "to": {}}
        assert (after["from"][peer]["changes"], after["from"][peer]["version"]) == (2, 2)
        assert 0 <= after["from"][peer]["age"] < harness.at_most(5)
        assert after["to"] == {peer: {"puts": 2, "bytes": 32, "dropped": 0}}


KINDS_OF_ERRORS = {
    "a name that is none": "TypeError",
    "no tensor": "TypeError",
    "a name unknown to update": "KeyError",
    "a name unknown to free": "KeyError",
}


def test_bad_calls_are_refused(pool: harness.Pool) -> None:
    for told in pool.run(bad_calls, world=4):
        for label, error in told.items():
            kind = KINDS_OF_ERRORS.get(label, "ValueError")
            assert error is not None, label
            assert kind in error.kinds, (label, error)
            assert "[bluefog]" in error.text, (label, error)


def without_p(rank: int, world: int) -> list[Any]:
    """p goes nowhere while it is off, and a copy that a slot begins with is no change."""
    bf = ring()
    window = bf.Window(torch.full((4,), float(rank)), "w")
    before = {source: (it.changes, it.age, it.p) for source, it in window.states().items()}
    dist.barrier()
    window.get()
    fetched = [it.p for it in window.states().values()]
    dist.barrier()
    bf.torch.turn_on_win_ops_with_associated_p()
    window.get()
    with_p = [it.p for it in window.states().values()]
    bf.torch.turn_off_win_ops_with_associated_p()
    done = bf.torch.win_wait(window.put(async_op=True))
    window.free()
    return [before, fetched, with_p, done]


def test_p_goes_with_the_data_while_it_is_on(pool: harness.Pool) -> None:
    for rank, told in enumerate(pool.run(without_p, world=2)):
        assert told == [{1 - rank: (0, math.inf, 0.0)}, [0.0], [1.0], True]


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_lose_nothing(pool: harness.Pool, seed: int) -> None:
    told = pool.run(random_calls, seed, 3000, world=4, timeout=60)
    assert sum(sent for sent, _ in told) == sum(arrived for _, arrived in told)
