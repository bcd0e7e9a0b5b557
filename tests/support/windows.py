"""These bodies use windows as ranks do on one host and on several."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import torch
import torch.distributed as dist

from tests.support import inrank, oracle

KINDS = (*oracle.FLOATS, torch.complex64, torch.uint8, torch.int32, torch.int64)


def ring() -> Any:
    """Set the ring as the topology, and return bluefog_pg."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(dist.get_world_size()))
    return bluefog_pg


def near(rank: int, world: int) -> list[int]:
    return sorted({(rank - 1) % world, (rank + 1) % world} - {rank})


def differs(x: torch.Tensor, value: complex) -> bool:
    return not bool(x.eq(value).all())


def put_and_updated(rank: int, world: int) -> None:
    """Put and update by weights, with p, in every type; integers are rounded toward zero."""
    bf, bad = ring(), []
    bf.torch.turn_on_win_ops_with_associated_p()
    for n in (1, 1000, 70_000):
        for dtype in KINDS:
            x = torch.full((n,), 4 * rank + 4, dtype=dtype)
            window = bf.Window(x, "w", zero_init=True)
            dist.barrier()
            window.put(self_weight=0.5, dst_weights=dict.fromkeys(window.destinations, 0.25))
            if differs(x, 2 * rank + 2):
                bad.append(f"{n} {dtype}: {x[0]} is left")
            dist.barrier()
            if window.versions() != dict.fromkeys(near(rank, world), 1):
                bad.append(f"{n} {dtype}: versions {window.versions()}")
            got = window.update(
                self_weight=1.0, neighbor_weights=dict.fromkeys(window.sources, 2.0)
            )
            wanted = 2 * rank + 2 + sum(2 * (source + 1) for source in near(rank, world))
            if got.data_ptr() != x.data_ptr() or differs(x, wanted):
                bad.append(f"{n} {dtype}: {x[0]} instead of {wanted}")
            p = 0.5 + 2 * 0.25 * len(near(rank, world))
            if window.associated_p != p:
                bad.append(f"{n} {dtype}: p {window.associated_p} instead of {p}")
            window.free()
    bf.torch.turn_off_win_ops_with_associated_p()
    assert not bad, bad


def added_and_fetched(rank: int, world: int) -> list[Any]:
    """Accumulate and fetch float64, and return what each call shows of the one before it."""
    bf = ring()
    x = torch.full((3, 5), float(rank), dtype=torch.float64)
    window = bf.Window(x, "w")
    own = window.update(clone=True)  # The slots began with the rank's own values.
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


def push_sum(rank: int, world: int) -> list[float]:
    """Run push-sum without barriers, the last rank five times slower, and return sums, p and x / p.

    x / p is the mean, and no p is lost. Every rank goes on until each has made 100 steps, since a
    rank that stops mixes nothing more.
    """
    bf = ring()
    bf.torch.turn_on_win_ops_with_associated_p()
    x = torch.full((40_000,), float(rank), dtype=torch.float64)
    window = bf.Window(x, "w", zero_init=True)
    share = 1.0 / (1 + len(window.destinations))
    dist.barrier()
    steps = 0
    while not inrank.has_met("100 steps", world):
        window.accumulate(self_weight=share, dst_weights=dict.fromkeys(window.destinations, share))
        window.update_then_collect(require_mutex=steps % 2 == 0)
        steps += 1
        if steps == 100:
            inrank.mark("100 steps")
        time.sleep(0.005 if rank == world - 1 else 0.001)
    dist.barrier()
    window.update_then_collect()
    told = [x.sum().item() / x.numel(), window.associated_p, float(x.eq(x[0]).all())]
    estimate = x[0].item() / window.associated_p
    bf.torch.turn_off_win_ops_with_associated_p()
    window.free()
    return [*told, estimate]


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
        "a name unknown to update": lambda: bf.torch.win_update("v"),
        "a name unknown to free": lambda: bf.torch.win_free("v"),
        "a name unknown to put": lambda: bf.torch.win_put(x, "v"),
        "a name unknown to get": lambda: bf.torch.win_get("v"),
        "a name unknown to versions": lambda: bf.torch.get_win_version("v"),
        "a name unknown to mutex": lambda: bf.torch.win_mutex("v"),
        "freed": lambda: freed.put(),
        "replaced": lambda: replaced.update(),
        "another shape": lambda: window.put(torch.zeros(5)),
        "another type": lambda: window.put(torch.zeros(4, dtype=torch.float64)),
        "a list": lambda: window.put([x]),
        "itself": lambda: window.put(dst_weights={rank: 1.0}),
        "no rank": lambda: window.put(dst_weights=[world]),
        "no neighbor": lambda: bf.torch.win_put(x, "w", dst_weights={(rank + 2) % world: 1.0}),
        "no neighbor to get": lambda: bf.torch.win_get("w", {(rank + 2) % world: 1.0}),
        "no neighbor to update": lambda: bf.torch.win_update("w", 0.5, {(rank + 2) % world: 1.0}),
        "a weight that is none": lambda: window.put(dst_weights={(rank + 1) % world: math.nan}),
        "one weight alone": lambda: window.update(self_weight=0.5),
        "the other alone": lambda: window.update(neighbor_weights={}),
        "another policy": lambda: bf.Window(x, "v", on_peer_failure="ignore"),
        "no handle": lambda: bf.torch.win_poll(10**9),
    }
    told = {label: inrank.catch(call) for label, call in calls.items()}
    window.free()
    replaced.free()
    return told


def random_calls(rank: int, world: int, seed: int, calls: int) -> tuple[int, float]:
    """Add integers, and p with them, at random; return what was sent and what came."""
    bf, chance = ring(), random.Random(1000 * seed + rank)
    bf.torch.turn_on_win_ops_with_associated_p()
    x = torch.zeros(257, dtype=torch.float64)
    window = bf.Window(x, "w", zero_init=True)
    sent, torn = 0, []
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
                torn.append(x.unique().tolist())
        else:
            window.states()
    dist.barrier()
    window.update(
        self_weight=1.0,
        neighbor_weights={other: 1.0 for other in range(world) if other != rank},
        reset=True,
    )
    bf.torch.turn_off_win_ops_with_associated_p()
    arrived = x[0].item()
    if not x.eq(arrived).all():
        torn.append(x.unique().tolist())
    window.free()
    assert not torn, f"torn {len(torn)} times, first to {torn[0]}"
    return sent, arrived
