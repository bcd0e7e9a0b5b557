"""This module has operations that cannot end without the group's last rank, for tests of faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Group = dist.ProcessGroup | None

LARGE = 1 << 20  # elements of many frames, so that a fault falls between two frames


def f(n: int) -> torch.Tensor:
    return torch.ones(n)


def coalesced(rank: int, world: int, group: Group) -> None:
    with dist.distributed_c10d._coalescing_manager(group):
        dist.all_reduce(f(16), group=group)
        dist.all_reduce(f(LARGE), group=group)


def receive(rank: int, world: int, group: Group) -> None:
    last = world - 1
    if rank != last:
        dist.recv(f(16), last, group=group)
    else:
        for r in range(last):
            dist.send(f(16), r, group=group)


def large_send(rank: int, world: int, group: Group) -> None:
    last, x = world - 1, f(4 * LARGE)
    if rank != last:
        dist.send(x, last, group=group)
    else:
        for r in range(last):
            dist.recv(x, r, group=group)


def batch(rank: int, world: int, group: Group) -> None:
    last = world - 1
    peers = range(last) if rank == last else [last]
    ops = [dist.P2POp(dist.isend, f(LARGE), r, group) for r in peers]
    ops += [dist.P2POp(dist.irecv, f(LARGE), r, group) for r in peers]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def neighbor(n: int) -> Callable[[int, int, Group], None]:
    """Return a call in which every rank averages n elements with every other."""

    def call(rank: int, world: int, group: Group) -> None:
        import bluefog_pg

        weights = {r: 1.0 for r in range(world) if r != rank}
        bluefog_pg.neighbor_allreduce(
            f(n), self_weight=1.0, src_weights=weights, dst_weights=list(weights), group=group
        )

    return call


def monitored(rank: int, world: int, group: Group) -> None:
    import bluefog_pg

    bluefog_pg.monitored_barrier(group)


def gather(rank: int, world: int, group: Group) -> None:
    dist.gather(f(LARGE), [f(LARGE) for _ in range(world)] if rank == 0 else None, 0, group)


def scatter(rank: int, world: int, group: Group) -> None:
    parts = [f(LARGE) for _ in range(world)] if rank == world - 1 else None
    dist.scatter(f(LARGE), parts, world - 1, group)


def lists(n: int, world: int) -> list[torch.Tensor]:
    return [f(n) for _ in range(world)]


OPERATIONS: dict[str, Callable[[int, int, Group], Any]] = {
    "all_reduce": lambda r, w, g: dist.all_reduce(f(16), group=g),
    "large all_reduce": lambda r, w, g: dist.all_reduce(f(LARGE), group=g),
    "all_reduce later": lambda r, w, g: dist.all_reduce(f(16), group=g, async_op=True).wait(),
    "all_reduce_coalesced": coalesced,
    "sparse all_reduce": lambda r, w, g: dist.all_reduce(f(16).to_sparse(), group=g),
    "broadcast": lambda r, w, g: dist.broadcast(f(LARGE), w - 1, g),
    "reduce": lambda r, w, g: dist.reduce(f(LARGE), 0, group=g),
    "all_gather": lambda r, w, g: dist.all_gather(lists(5000, w), f(5000), g),
    "large all_gather": lambda r, w, g: dist.all_gather_into_tensor(f(w * LARGE), f(LARGE), g),
    "all_gather_object": lambda r, w, g: dist.all_gather_object([None] * w, "it", g),
    "gather": gather,
    "scatter": scatter,
    "reduce_scatter": lambda r, w, g: dist.reduce_scatter_tensor(f(LARGE), f(w * LARGE), group=g),
    "all_to_all": lambda r, w, g: dist.all_to_all(lists(LARGE, w), lists(LARGE, w), g),
    "all_to_all_single": lambda r, w, g: dist.all_to_all_single(f(w), f(w), group=g),
    "barrier": lambda r, w, g: dist.barrier(g),
    "monitored_barrier": monitored,
    "neighbor_allreduce": neighbor(16),
    "large neighbor_allreduce": neighbor(LARGE),
    "recv": receive,
    "large send": large_send,
    "batch_isend_irecv": batch,
}
