"""What a rank of test_graphs does: it captures an average, and replays it with other tensors."""

from __future__ import annotations

import torch

import bluefog_pg


def replayed(rank: int, _world: int, async_op: bool) -> tuple[list[float], list[float]]:
    """What came of each replay, and what should have."""
    bluefog_pg.set_topology()
    near = [rank, *bluefog_pg.in_neighbor_ranks()]
    x = torch.full((40_001,), float(rank), device="cuda")
    bluefog_pg.neighbor_allreduce(x)  # makes what cannot be made in a capture
    torch.cuda.synchronize()
    graph, got, want = torch.cuda.CUDAGraph(), list[float](), list[float]()
    with torch.cuda.graph(graph):
        out = bluefog_pg.neighbor_allreduce(x, async_op=async_op)
        if async_op:
            out.wait()
            out = out.result()[0]
    for turn in range(5):
        x.fill_(rank + 10.0 * turn)
        graph.replay()
        got.append(out.mean().item())
        want.append(sum(near) / len(near) + 10.0 * turn)
    graph.reset()  # before the communicator that it uses
    return got, want
