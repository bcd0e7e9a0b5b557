"""Every neighbour operation by its name, and groups whose ranks are spread over machines."""

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
    """The least and the greatest of what it gives for that."""
    out = call(x)
    return out.min().item(), out.max().item()


@contextmanager
def group_of_machines(each: int, limit: float = 30) -> Iterator[Group]:
    """Of all ranks, so many of them on each machine. They leave it together."""
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
    """For each of OPERATIONS: machines of two ranks (one, where there is an odd number)."""
    import bluefog_pg

    world = dist.get_world_size()
    each = 1 if world % 2 else 2
    with group_of_machines(each, limit) as group:
        bluefog_pg.set_topology(group=group)
        ring = bluefog_pg.topology_util.RingGraph(world // each)
        bluefog_pg.set_machine_topology(ring, group=group)
        yield group


def alltoall(x: torch.Tensor, group: Group, **options: Any) -> Any:
    """Parts of one, two and so on rows each."""
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


# Of a tensor with a dimension, over a `ready_group` of an even number of ranks.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "neighbor_allreduce": plain("neighbor_allreduce"),
    "neighbor_allreduce of a list": plain("neighbor_allreduce", listed=True),
    "neighbor_allgather": plain("neighbor_allgather"),
    "neighbor_alltoall": alltoall,
    "pair_gossip": gossip,
    "hierarchical_neighbor_allreduce": plain("hierarchical_neighbor_allreduce"),
}


def tensors(result: Any) -> list[torch.Tensor]:
    """What the operation gave, or its Work, once it has ended."""
    if hasattr(result, "wait"):
        result.wait()
        result = result.result()
    return [result] if isinstance(result, torch.Tensor) else result


ANSWERS = ("rank", "size", "local_rank", "local_size", "machine_rank", "machine_size")


def answers(group: Group = None) -> list[Any]:
    """Where this rank is: of ANSWERS, and is_homogeneous."""
    import bluefog_pg

    return [getattr(bluefog_pg, name)(group) for name in (*ANSWERS, "is_homogeneous")]


def place_by_host(rank: int, world: int) -> list[int]:
    """Local rank and size, machine's rank and size: of one host, unless ranks share no memory."""
    return [0, 1, rank, world] if TRANSPORT == "mpi" else [rank, world, 0, 1]
