"""These tests call what takes several ranks in topology_util: Infer*, and a schedule in use."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from tests.support import harness, inrank


def infer(rank: int, world: int, graphs: list[list[list[int]]]) -> list[Any]:
    """Return all four calls' answers for each graph, which has the ranks that each rank names."""
    from bluefog_pg.topology_util import (
        InferDestinationFromSourceRanks,
        InferSourceFromDestinationRanks,
    )

    told = []
    for named in graphs:
        for call in (InferSourceFromDestinationRanks, InferDestinationFromSourceRanks):
            ranks, weights = call(named[rank], construct_adjacency_matrix=True)
            assert weights.dtype == np.float64
            told.append((call(named[rank]), ranks, weights.tolist()))
    return told


@pytest.mark.parametrize("world", [1, 2, 4])
def test_any_graph(pool: harness.Pool, world: int) -> None:
    """Irregular graphs are inferred, too, with ranks that name nobody or that nobody names."""
    draw = random.Random(world)
    graphs = [
        [[j for j in range(world) if j != i and draw.random() < p] for i in range(world)]
        for p in (0, 0.3, 0.5, 0.7, 1)
    ]
    graphs += [[list(reversed(named)) for named in graphs[-1]]]  # The order does not matter.
    for rank, told in enumerate(pool.run(infer, graphs, world=world)):
        for number, (plain, ranks, weights) in enumerate(told):
            named, is_sources = graphs[number // 2], number % 2 == 1
            assert plain == ranks == [i for i in range(world) if rank in named[i]]
            assert all(type(r) is int for r in ranks)
            want = np.eye(world)
            for i in range(world):
                for j in named[i]:
                    want[(j, i) if is_sources else (i, j)] = 1
            np.testing.assert_allclose(weights, want / want.sum(axis=0), rtol=1e-15)


def in_other_forms(rank: int, world: int) -> list[Any]:
    import torch

    from bluefog_pg.topology_util import InferSourceFromDestinationRanks as Infer

    after = (rank + 1) % world
    forms = [np.array([after]), (np.int32(after),), {after}, torch.tensor([after]), iter([after])]
    halves = [dist.new_group([0, 2]), dist.new_group([3, 1])]
    half = halves[rank % 2]
    return [Infer(form) for form in forms] + [Infer([1 - half.rank()], group=half)]


def test_numpy_integers_and_groups(pool: harness.Pool) -> None:
    for rank, told in enumerate(pool.run(in_other_forms)):
        assert told[:-1] == [[(rank - 1) % 4]] * 5
        assert told[-1] == [0 if rank in (2, 3) else 1]  # They name ranks of the group of two.


BAD: dict[str, Any] = {
    "no rank": [4],
    "negative": [-1],
    "this rank": [0],
    "twice": [1, 1],
    "1.0": [1.0],
    "'1'": ["1"],
    "not a list": 3,
}


def refused(rank: int, world: int) -> list[Any]:
    from bluefog_pg import topology_util as tu

    calls = (tu.InferSourceFromDestinationRanks, tu.InferDestinationFromSourceRanks)
    errors = {}
    if rank == 0:  # This fails before the collective, so nobody else has to come.
        errors = {
            (k, i): inrank.catch(c, bad) for k, bad in BAD.items() for i, c in enumerate(calls)
        }
    return [errors, tu.InferSourceFromDestinationRanks([(rank + 1) % world])]


def test_bad_ranks_are_refused_before_the_collective(pool: harness.Pool) -> None:
    told = pool.run(refused)
    assert len(told[0][0]) == 2 * len(BAD)
    for (what, number), error in told[0][0].items():
        assert error is not None, f"{what} was accepted"
        assert {"ValueError", "AssertionError"} <= set(error.kinds), what
        assert error.text.startswith("[bluefog] rank 0/4: ")
        assert ("dst_ranks", "src_ranks")[number] in error.text
    assert [t[1] for t in told] == [[3], [0], [1], [2]]


def run_base_k(rank: int, world: int) -> float:
    import torch

    import bluefog_pg
    from bluefog_pg import topology_util as tu

    x = torch.tensor([float(rank**2)], dtype=torch.float64)
    for graph in tu.BaseKGraphs(world):  # In each step of three ranks, one of them rests.
        own, sources = tu.GetRecvWeights(graph, rank)
        _, destinations = tu.GetSendWeights(graph, rank)
        x = bluefog_pg.neighbor_allreduce(
            x, self_weight=own, src_weights=sources, dst_weights=list(destinations)
        )
    return x.item()


def test_base_k_among_ranks(pool: harness.Pool) -> None:
    assert pool.run(run_base_k, world=3) == [pytest.approx(5 / 3, abs=1e-12)] * 3
