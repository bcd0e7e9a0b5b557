"""A rank of test_graphs runs these bodies: it captures a call, and replays it with new tensors."""

from __future__ import annotations

import os
from collections.abc import Callable

import networkx as nx
import torch
import torch.distributed as dist

import bluefog_pg

Told = tuple[list[float], list[float]]  # what came of each replay, and what should have come


def replayed(rank: int, call: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
    x = torch.full((40_001,), float(rank), device="cuda")
    call(x)  # This makes what cannot be made in a capture.
    torch.cuda.synchronize()
    graph, got = torch.cuda.CUDAGraph(), list[float]()
    with torch.cuda.graph(graph):
        out = call(x)
    for turn in range(5):
        x.fill_(rank + 10.0 * turn)
        graph.replay()
        got.append(out.mean().item())
    graph.reset()  # The graph goes before the communicator that it uses.
    return got


def averages(rank: int, _world: int, async_op: bool) -> Told:
    bluefog_pg.set_topology()
    near = [rank, *bluefog_pg.in_neighbor_ranks()]

    def call(x: torch.Tensor) -> torch.Tensor:
        out = bluefog_pg.neighbor_allreduce(x, async_op=async_op)
        if not async_op:
            return out
        out.wait()
        return out.result()[0]

    return replayed(rank, call), [sum(near) / len(near) + 10.0 * turn for turn in range(5)]


def sums(rank: int, world: int) -> Told:
    def call(x: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        dist.all_reduce(out)
        return out

    return replayed(rank, call), [sum(range(world)) + 10.0 * turn * world for turn in range(5)]


def others(rank: int, world: int) -> dict[str, Told]:
    """Replay gathers, exchanges and gossip of pairs, and averages over machines of two ranks."""
    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world, connect_style=1))
    (left,) = bluefog_pg.in_neighbor_ranks()
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    group = dist.new_group()
    bluefog_pg.set_machine_topology(nx.complete_graph(world // 2, nx.DiGraph), group=group)
    calls: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
        "rows": (bluefog_pg.neighbor_allgather, left),
        "parts": (lambda x: bluefog_pg.neighbor_alltoall([x])[0], left),
        "pairs": (lambda x: bluefog_pg.pair_gossip(x, rank ^ 1), rank // 2 * 2 + 0.5),
        "machines": (
            lambda x: bluefog_pg.hierarchical_neighbor_allreduce(x, group=group),
            (world - 1) / 2,
        ),
    }
    return {
        name: (replayed(rank, call), [want + 10.0 * turn for turn in range(5)])
        for name, (call, want) in calls.items()
    }
