"""This module has every neighbor operation by its name, and groups spread over machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.support.environment import TRANSPORT

MACHINE_SIZE = "BLUEFOG_NODES_PER_MACHINE"
Group = Any


def extremes(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[float, float]:
    """Return the least and the greatest element of what the call gives for x."""
    out = call(x)
    return out.min().item(), out.max().item()


@contextmanager
def group_of_machines(each: int, limit: float = 30) -> Iterator[Group]:
    """Yield a group of all ranks with `each` ranks on a machine. The ranks leave it together."""
    group = dist.new_group(timeout=timedelta(seconds=limit))
    kept = os.environ.get(MACHINE_SIZE)
    os.environ[MACHINE_SIZE] = str(each)
    try:
        yield group
        dist.barrier(group)
    finally:
        os.environ.pop(MACHINE_SIZE)
        if kept is not None:
            os.environ[MACHINE_SIZE] = kept
        dist.destroy_process_group(group)


@contextmanager
def ready_group(limit: float = 30) -> Iterator[Group]:
    """Yield a group that fits OPERATIONS.

    A machine has two ranks, or one if ranks are odd in number.
    """
    import bluefog_pg

    world = dist.get_world_size()
    each = 1 if world % 2 else 2
    with group_of_machines(each, limit) as group:
        bluefog_pg.set_topology(group=group)
        ring = bluefog_pg.topology_util.RingGraph(world // each)
        bluefog_pg.set_machine_topology(ring, group=group)
        yield group


def alltoall(x: torch.Tensor, group: Group, **options: Any) -> Any:
    """Send the elements of x to the first out-neighbor, their doubles to the second, and so on."""
    import bluefog_pg

    flat = x.reshape(-1)
    parts = [flat * (i + 1) for i, _ in enumerate(bluefog_pg.out_neighbor_ranks(group))]
    return bluefog_pg.neighbor_alltoall(parts or flat[:0], group=group, **options)


def gossip(x: torch.Tensor, group: Group, **options: Any) -> Any:
    import bluefog_pg

    return bluefog_pg.pair_gossip(x, group.rank() ^ 1, group=group, **options)


def plain(name: str, listed: bool = False) -> Callable[..., Any]:
    def call(x: torch.Tensor, group: Group, **options: Any) -> Any:
        import bluefog_pg

        given = [x, x.double(), x.reshape(-1)[:1]] if listed else x
        return getattr(bluefog_pg, name)(given, group=group, **options)

    return call


# Each takes a tensor with at least one dimension, over a `ready_group` of an even number of ranks.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "neighbor_allreduce": plain("neighbor_allreduce"),
    "neighbor_allreduce of a list": plain("neighbor_allreduce", listed=True),
    "neighbor_allgather": plain("neighbor_allgather"),
    "neighbor_alltoall": alltoall,
    "pair_gossip": gossip,
    "hierarchical_neighbor_allreduce": plain("hierarchical_neighbor_allreduce"),
}


def tensors(result: Any) -> list[torch.Tensor]:
    """Return the results of an operation as a list, waiting for its Work if it gave one."""
    if hasattr(result, "wait"):
        result.wait()
        result = result.result()
    return [result] if isinstance(result, torch.Tensor) else result


ANSWERS = ("rank", "size", "local_rank", "local_size", "machine_rank", "machine_size")


def answers(group: Group = None) -> list[Any]:
    """Return where this rank is: the values of ANSWERS, and is_homogeneous."""
    import bluefog_pg

    return [getattr(bluefog_pg, name)(group) for name in (*ANSWERS, "is_homogeneous")]


def place_by_host(rank: int, world: int) -> list[int]:
    """Return local rank and size, and the machine's rank and size, of ranks of a test.

    They are on one host, unless ranks share no memory.
    """
    return [0, 1, rank, world] if TRANSPORT == "mpi" else [rank, world, 0, 1]
