"""Windows: what is put, added and fetched, and what updates make of it."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

import harness
import inrank
import oracle

pytestmark = harness.only_bluefog

KINDS = (*oracle.FLOATS, torch.complex64, torch.uint8, torch.int32, torch.int64)


def ring() -> Any:
    """bluefog_pg, with the ring as the topology."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(dist.get_world_size()))
    return bluefog_pg


def near(rank: int, world: int) -> list[int]:
    return sorted({(rank - 1) % world, (rank + 1) % world} - {rank})


def differs(x: torch.Tensor, value: complex) -> bool:
    return not bool(x.eq(value).all())


def put_and_updated(rank: int, world: int) -> list[str]:
    """Weights and p, of every type: integers are rounded towards zero."""
    bf, bad = ring(), []
    bf.turn_on_win_ops_with_associated_p()
    for n in (1, 1000, 70_000):
        for dtype in KINDS:
            x = torch.full((n,), 4 * rank + 4, dtype=dtype)
            window = bf.Window(x, "w", zero_init=True)
            dist.barrier()
            window.put(self_weight=0.5, dst_weights=dict.fromkeys(window.destinations, 0.25))
            if differs(x, 2 * rank + 2):
                bad.append(f"{dtype}: {x[0]} is left")
            dist.barrier()
            if window.versions() != dict.fromkeys(near(rank, world), 1):
                bad.append(f"{dtype}: versions {window.versions()}")
            got = window.update(
                self_weight=1.0, neighbor_weights=dict.fromkeys(window.sources, 2.0)
            )
            wanted = 2 * rank + 2 + sum(2 * (source + 1) for source in near(rank, world))
            if got.data_ptr() != x.data_ptr() or differs(x, wanted):
                bad.append(f"{dtype}: {x[0]} instead of {wanted}")
            p = 0.5 + 2 * 0.25 * len(near(rank, world))
            if window.associated_p != p:
                bad.append(f"{dtype}: p {window.associated_p} instead of {p}")
            window.free()
    bf.turn_off_win_ops_with_associated_p()
    return bad


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_puts_and_updates(pool: harness.Pool, world: int) -> None:
    assert pool.run(put_and_updated, world=world) == [[]] * world


def added_and_fetched(rank: int, world: int) -> list[Any]:
    """Of float64: each call, seen by the next one."""
    bf = ring()
    x = torch.full((3, 5), float(rank), dtype=torch.float64)
    window = bf.Window(x, "w")
    own = window.update(clone=True)  # slots began with the rank's own values
    dist.barrier()
    window.accumulate(dst_weights=dict.fromkeys(window.destinations, 2.0))
    window.accumulate(torch.ones_like(x))
    dist.barrier()
    versions = window.versions()
    slots = [window.read(source)[0, 0].item() for source in window.sources]
    collected = window.update_then_collect()[0, 0].item()
    again = window.update_then_collect()[0, 0].item()
    dist.barrier()
    x.fill_(100.0 * rank)
    dist.barrier()
    window.get(src_weights=dict.fromkeys(window.sources, 0.5))
    fetched = [window.read(source)[0, 0].item() for source in window.sources]
    window.free()
    return [own.eq(rank).all().item(), versions, slots, collected, again, fetched]


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
    """A model's parameters, in one put; its own tensors change with the window."""
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
    return [*told, part.tolist(), bf.get_current_created_window_names()]


def test_views_are_windows_and_go_on_without_them(pool: harness.Pool) -> None:
    numbers = [float(i) for i in range(12)]
    told = [numbers[3:9], numbers[3:9], numbers[1:3], numbers[4:10], []]
    assert pool.run(aliases, world=2) == [told] * 2


def into_a_busy_target(rank: int, world: int) -> list[Any]:
    """Rank 1 computes for a second, with the GIL held by nobody: rank 0 needs nothing of it."""
    bf = ring()
    window = bf.Window(torch.zeros(1 << 18), "w", zero_init=True)
    dist.barrier()
    begun = time.monotonic()
    if rank == 1:
        while time.monotonic() - begun < 1:
            pass
    else:
        for _ in range(20):
            window.accumulate(torch.ones(1 << 18))
    took = time.monotonic() - begun
    dist.barrier()
    seen = window.update_then_collect()[0].item()
    window.free()
    return [took < 0.9, seen]


def test_a_busy_target_is_not_waited_for(pool: harness.Pool) -> None:
    (soon, nothing), (_, everything) = pool.run(into_a_busy_target, world=2)
    assert soon
    assert (nothing, everything) == (0, 20)


def push_sum(rank: int, world: int, seconds: float) -> list[float]:
    """Without barriers, the last rank five times slower: x / p is the mean, and no p is lost."""
    bf = ring()
    bf.turn_on_win_ops_with_associated_p()
    x = torch.full((40_000,), float(rank), dtype=torch.float64)
    window = bf.Window(x, "w", zero_init=True)
    share = 1.0 / (1 + len(window.destinations))
    dist.barrier()
    begun, steps = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        window.accumulate(self_weight=share, dst_weights=dict.fromkeys(window.destinations, share))
        window.update_then_collect(require_mutex=steps % 2 == 0)
        steps += 1
        time.sleep(0.005 if rank == world - 1 else 0.001)
    dist.barrier()
    window.update_then_collect()
    told = [x.sum().item() / x.numel(), window.associated_p, float(x.eq(x[0]).all())]
    estimate = x[0].item() / window.associated_p
    bf.turn_off_win_ops_with_associated_p()
    window.free()
    return [*told, estimate]


@pytest.mark.parametrize("world", [2, 4])
def test_push_sum_loses_nothing(pool: harness.Pool, world: int) -> None:
    told = pool.run(push_sum, 2.0 * harness.SLOW, world=world, timeout=60)
    assert sum(p for _, p, _, _ in told) == pytest.approx(world, abs=1e-9)
    assert sum(x for x, _, _, _ in told) == pytest.approx(sum(range(world)), abs=1e-9)
    for _, _, is_whole, estimate in told:
        assert is_whole
        assert estimate == pytest.approx((world - 1) / 2, abs=1e-6)


def exclusive(rank: int, world: int) -> list[Any]:
    """The owner holds its mutexes for a while: who asks for them waits, who does not goes on."""
    bf = ring()
    x = torch.zeros(4)
    window = bf.Window(x, "w", zero_init=True)
    dist.barrier()
    times, again = [], None
    if rank == 0:
        with window.mutex(for_self=True):
            again = inrank.catch(lambda: window.mutex(for_self=True).__enter__())
            window.update(require_mutex=True)  # this thread has them
            dist.barrier()
            time.sleep(0.5)
        dist.barrier()
    else:
        dist.barrier()
        for require_mutex in (False, True):
            begun = time.monotonic()
            window.put(torch.ones(4), dst_weights=[0], require_mutex=require_mutex)
            times.append(time.monotonic() - begun)
        dist.barrier()
    window.free()
    return [again, times]


def test_mutexes(pool: harness.Pool) -> None:
    (again, _), (_, (free, held)) = pool.run(exclusive, world=2)
    harness.raised(again, "RuntimeError", text="holds the mutex already")
    assert free < 0.4
    assert 0.4 < held < 1.5 * harness.SLOW


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
        assert 0 <= after["from"][peer]["age"] < 5 * harness.SLOW
        assert after["to"] == {peer: {"puts": 2, "bytes": 32, "dropped": 0}}


def bad_calls(rank: int, world: int) -> dict[str, Any]:
    bf = ring()
    x = torch.zeros(4)
    window = bf.Window(x, "w")
    freed = bf.Window(torch.zeros(2), "freed")
    freed.free()
    replaced = bf.Window(torch.zeros(2), "replaced")
    replaced.tensor.data = torch.ones(2)
    calls = {
        "a name that is taken": lambda: bf.Window(x, "w"),
        "a name that is none": lambda: bf.Window(x, 5),
        "no tensor": lambda: bf.Window("x", "v"),
        "a name unknown to update": lambda: bf.win_update("v"),
        "a name unknown to free": lambda: bf.win_free("v"),
        "a name unknown to put": lambda: bf.win_put(x, "v"),
        "a name unknown to get": lambda: bf.win_get("v"),
        "a name unknown to versions": lambda: bf.get_win_version("v"),
        "a name unknown to mutex": lambda: bf.win_mutex("v"),
        "freed": lambda: freed.put(),
        "replaced": lambda: replaced.update(),
        "another shape": lambda: window.put(torch.zeros(5)),
        "another type": lambda: window.put(torch.zeros(4, dtype=torch.float64)),
        "a list": lambda: window.put([x]),
        "itself": lambda: window.put(dst_weights={rank: 1.0}),
        "no rank": lambda: window.put(dst_weights=[world]),
        "no neighbour": lambda: bf.win_put(x, "w", dst_weights={(rank + 2) % world: 1.0}),
        "no neighbour to get": lambda: bf.win_get("w", {(rank + 2) % world: 1.0}),
        "no neighbour to update": lambda: bf.win_update("w", 0.5, {(rank + 2) % world: 1.0}),
        "a weight that is none": lambda: window.put(dst_weights={(rank + 1) % world: math.nan}),
        "one weight alone": lambda: window.update(self_weight=0.5),
        "the other alone": lambda: window.update(neighbor_weights={}),
        "another policy": lambda: bf.Window(x, "v", on_peer_failure="ignore"),
        "no handle": lambda: bf.win_poll(10**9),
    }
    told = {label: inrank.catch(call) for label, call in calls.items()}
    window.free()
    replaced.free()
    return told


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
    """While it is off, p goes nowhere; a copy that a slot begins with is no change."""
    bf = ring()
    window = bf.Window(torch.full((4,), float(rank)), "w")
    before = {source: (it.changes, it.age, it.p) for source, it in window.states().items()}
    dist.barrier()
    window.get()
    fetched = [it.p for it in window.states().values()]
    dist.barrier()
    bf.turn_on_win_ops_with_associated_p()
    window.get()
    with_p = [it.p for it in window.states().values()]
    bf.turn_off_win_ops_with_associated_p()
    done = bf.win_wait(window.put(async_op=True))
    window.free()
    return [before, fetched, with_p, done]


def test_p_goes_with_the_data_while_it_is_on(pool: harness.Pool) -> None:
    for rank, told in enumerate(pool.run(without_p, world=2)):
        assert told == [{1 - rank: (0, math.inf, 0.0)}, [0.0], [1.0], True]


def random_calls(rank: int, world: int, seed: int, calls: int) -> list[Any]:
    """Integers, at random, without barriers: what arrives is what was sent; p goes with it."""
    import random

    bf, chance = ring(), random.Random(1000 * seed + rank)
    bf.turn_on_win_ops_with_associated_p()
    x = torch.zeros(257, dtype=torch.float64)
    window = bf.Window(x, "w", zero_init=True)
    sent = 0
    dist.barrier()
    for _ in range(calls):
        what = chance.random()
        if what < 0.6:
            amount = chance.randrange(1, 100)
            to = chance.choice([other for other in range(world) if other != rank])
            window.accumulate(
                torch.full_like(x, amount), dst_weights=[to], require_mutex=chance.random() < 0.3
            )
            sent += amount
        elif what < 0.9:
            some = {other: 1.0 for other in range(world) if other != rank}
            window.update(
                self_weight=1.0,
                neighbor_weights=some,
                reset=True,
                require_mutex=chance.random() < 0.3,
            )
            if not x.eq(x[0]).all():
                return ["torn"]
        else:
            window.states()
    dist.barrier()
    window.update(
        self_weight=1.0,
        neighbor_weights={other: 1.0 for other in range(world) if other != rank},
        reset=True,
    )
    bf.turn_off_win_ops_with_associated_p()
    told = [sent, x[0].item(), x.eq(x[0]).all().item()]
    window.free()
    return told


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_lose_nothing(pool: harness.Pool, seed: int) -> None:
    told = pool.run(random_calls, seed, 3000, world=4, timeout=60)
    assert sum(sent for sent, _, _ in told) == sum(arrived for _, arrived, _ in told)
    assert all(is_whole for _, _, is_whole in told)
