"""Neighbor operations of 1 to 17 ranks on two cores give what the dense matrix in float64 does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

from tests.support import harness, inrank, oracle
from tests.support.operations import OPERATIONS, group_of_machines, ready_group, tensors

RANKS = 17
WORLDS = (2, 3, 5, 8, 13, 17)
ROUNDS = 6
COUNT = 40_001  # elements that need more than one frame
Matrix = np.ndarray[Any, Any]


def matrices(graph: str, world: int) -> Iterator[Matrix]:
    """Yield the matrix of each round: [i, j] is what j takes of i."""
    from bluefog_pg import topology_util as util

    if graph == "one peer":
        for step in range(ROUNDS):
            hop = 2 ** (step % max(1, (world - 1).bit_length()))
            yield (np.eye(world) + np.roll(np.eye(world), hop, axis=1)) / 2
        return
    made = {
        "ring": util.RingGraph,
        "exponential-2": util.ExponentialTwoGraph,
        "star": util.StarGraph,
    }[graph](world)
    for _ in range(ROUNDS):
        yield nx.to_numpy_array(made, nodelist=range(world))


def rounds(rank: int, world: int, graph: str) -> float:
    """Return the largest error after all rounds, of tensors so large that frames go both ways."""
    import bluefog_pg

    every = np.stack([oracle.values(torch.float64, COUNT, 1, r).numpy() for r in range(world)])
    x = torch.from_numpy(every[rank])
    for matrix in matrices(graph, world):
        if graph == "one peer":
            (to,) = {j for j in range(world) if matrix[rank, j]} - {rank} or {rank}
            (source,) = {i for i in range(world) if matrix[i, rank]} - {rank} or {rank}
            weights = {"self_weight": 0.5, "src_weights": {source: 0.5}, "dst_weights": [to]}
            x = bluefog_pg.neighbor_allreduce(x, **weights)
        else:
            made = nx.from_numpy_array(matrix, create_using=nx.DiGraph)
            bluefog_pg.set_topology(made, is_weighted=True)
            x = bluefog_pg.neighbor_allreduce(x)
        every = matrix.T @ every
    return float(np.abs(x.numpy() - every[rank]).max())


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["ring", "exponential-2", "one peer", "star"])
@pytest.mark.parametrize("world", WORLDS)
def test_rounds(pool: harness.Pool, world: int, graph: str) -> None:
    assert max(pool.run(rounds, graph, world=world, timeout=180)) < 1e-13


def gathered(rank: int, world: int) -> None:
    """Gather from and to the center of a star, whoever that is, and gossip in pairs."""
    import bluefog_pg

    told: list[tuple[Any, Any]] = []  # results, and what they have to be
    for center in (0, world - 1):
        star = bluefog_pg.topology_util.StarGraph(world, center)
        bluefog_pg.set_topology(star)
        near = [r for r in range(world) if r != center] if rank == center else [center]
        rows = bluefog_pg.neighbor_allgather(torch.full((rank + 1, 2), float(rank)))
        told.append((rows[:, 1].tolist(), [float(r) for r in near for _ in range(r + 1)]))
        parts = bluefog_pg.neighbor_alltoall([torch.tensor([100 * rank + r]) for r in near])
        told.append(([part.item() for part in parts], [100 * r + rank for r in near]))
    peer = rank ^ 1
    if peer < world:
        mean = bluefog_pg.pair_gossip(torch.full((50_000,), float(rank)), peer)
        told.append((mean.unique().tolist(), [(rank + peer) / 2]))
    for got, want in told:
        assert got == want, f"{got}, not {want}"


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_stars_and_pairs(pool: harness.Pool, world: int) -> None:
    pool.run(gathered, world=world, timeout=120)


def by_machines(rank: int, world: int, each: int) -> list[float]:
    """Average in a directed ring of machines: each takes half of itself and of the one before."""
    import bluefog_pg

    count = world // each
    ring = nx.DiGraph([(k, (k + 1) % count) for k in range(count)])
    with group_of_machines(each) as group:
        bluefog_pg.set_machine_topology(ring, group=group)
        x = torch.full((50_000,), float(rank), dtype=torch.float64)
        mean = bluefog_pg.hierarchical_neighbor_allreduce(x, group=group)
        return mean.unique().tolist()


@pytest.mark.parametrize(("world", "each"), [(16, 2), (16, 8), (15, 5), (9, 3)])
def test_machines(pool: harness.Pool, world: int, each: int) -> None:
    for rank, (mean,) in enumerate(pool.run(by_machines, each, world=world, timeout=120)):
        own = rank // each
        before = (own - 1) % (world // each)
        assert mean == pytest.approx((own + before) / 2 * each + (each - 1) / 2, rel=1e-14)


def alone(rank: int, world: int, op: str) -> list[Any]:
    told: list[Any] = []
    with ready_group() as group:
        for later in (False, True):
            x = torch.arange(3.0)
            try:
                out = tensors(OPERATIONS[op](x, group, async_op=later))
            except ValueError as error:
                told.append(str(error))
            else:
                told.append([t.tolist() for t in out])
    return told


def test_one_rank(pool: harness.Pool) -> None:
    """One rank averages with nobody, gathers nothing, and has no pair."""
    x = [0.0, 1.0, 2.0]
    assert pool.run(alone, "neighbor_allreduce", world=1) == [[[x]] * 2]
    assert pool.run(alone, "neighbor_allreduce of a list", world=1) == [[[x, x, [0.0]]] * 2]
    assert pool.run(alone, "neighbor_allgather", world=1) == [[[[]]] * 2]
    assert pool.run(alone, "neighbor_alltoall", world=1) == [[[]] * 2]
    assert pool.run(alone, "hierarchical_neighbor_allreduce", world=1) == [[[x]] * 2]
    for text in pool.run(alone, "pair_gossip", world=1)[0]:
        assert "pair_gossip" in text and "rank 0 (0/1 of group" in text


def weighted_alone(rank: int, world: int) -> list[Any]:
    """A self-loop is all that one rank's graph may have."""
    import bluefog_pg

    loop = nx.DiGraph()
    loop.add_edge(0, 0, weight=0.25)
    bluefog_pg.set_topology(loop, is_weighted=True)
    x = torch.tensor([4.0, 8.0], requires_grad=True)
    static = bluefog_pg.neighbor_allreduce(x)
    static.sum().backward()
    given = bluefog_pg.neighbor_allreduce(x.detach(), self_weight=2.0, src_weights={})
    dynamic = bluefog_pg.neighbor_allreduce(
        x.detach(), self_weight=3.0, src_weights={}, dst_weights=[], enable_topo_check=True
    )
    errors = [
        inrank.catch(bluefog_pg.neighbor_allreduce, x, self_weight=1.0, src_weights={0: 1.0}),
        inrank.catch(bluefog_pg.pair_gossip, x, 0),
        inrank.catch(bluefog_pg.pair_gossip, x, 1),
    ]
    told = [static.tolist(), x.grad.tolist(), given.tolist(), dynamic.tolist()]
    return [told, [error and error.kind for error in errors]]


def test_one_rank_with_weights(pool: harness.Pool) -> None:
    ((told, errors),) = pool.run(weighted_alone, world=1)
    assert told == [[1, 2], [0.25, 0.25], [8, 16], [12, 24]]
    assert errors == ["ValueError"] * 3
