"""Distributed optimizers refuse topologies, orders and ranks' options that do not go together."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
import torch
from torch import nn

from tests.support import harness, inrank
from tests.support.one_weight import alike_weights, sgd, warned_by


def doubtful(rank: int, world: int) -> list[int]:
    import bluefog_pg
    from bluefog_pg import optim, topology_util

    def wrap(order: Any, communication: str = "neighbor_allreduce", kind: Any = sgd) -> Any:
        model = alike_weights()
        return lambda: bluefog_pg.DistributedOptimizer(
            kind(model), model, communication, order=order
        ).close()

    def adam(model: nn.Module) -> torch.optim.Adam:
        return torch.optim.Adam(model.parameters())

    found = []
    star = topology_util.StarGraph(world)
    for graph, is_weighted in ((star, False), (star, True)):
        bluefog_pg.set_topology(graph, is_weighted)
        found.append(warned_by(wrap(optim.ExactDiffusion()), "needs symmetric weights"))
    bluefog_pg.set_topology(topology_util.ExponentialTwoGraph(world))
    found += [
        warned_by(wrap(optim.ExactDiffusion(), "allreduce"), "needs symmetric weights"),
        warned_by(wrap(optim.QuasiGlobalMomentum(), kind=adam), "is for SGD"),
        warned_by(wrap(optim.QuasiGlobalMomentum()), "is for SGD"),
    ]
    bluefog_pg.set_topology(nx.DiGraph([(0, 1), (1, 0), (2, 3), (3, 2)]))
    found.append(warned_by(wrap("awc"), "not strongly connected"))
    bluefog_pg.set_topology(topology_util.ExponentialTwoGraph(world))
    return found


def test_doubtful_topologies_and_optimizers_are_warned_of(pool: harness.Pool) -> None:
    assert pool.run(doubtful) == [[1, 0, 0, 1, 0, 1]] * 4


def other_options(rank: int, _world: int, what: str) -> inrank.Raised | None:
    import bluefog_pg
    from bluefog_pg import optim

    odd = rank == 2
    options: dict[str, Any] = {
        "compressor": {"compression": optim.TopK(0.5, gamma=0.2 if odd else 0.1)},
        "order": {"order": optim.QuasiGlobalMomentum(0.5 if odd else 0.9)},
        "seeds": {"compression": optim.RandomK(0.5, seed=rank)},
    }[what]
    model = alike_weights()
    return inrank.catch(lambda: bluefog_pg.DistributedOptimizer(sgd(model), model, **options))


def test_options_that_are_not_alike(pool: harness.Pool) -> None:
    wanted = "compression: rank 0 has 'TopK(gamma=0.1, ratio=0.5)', rank 2 'TopK(gamma"
    for error in pool.run(other_options, "compressor"):
        harness.raised(error, "ValueError", text=wanted)
    wanted = "order: rank 0 has 'QuasiGlobalMomentum(momentum=0.9)', rank 2"
    for error in pool.run(other_options, "order"):
        harness.raised(error, "ValueError", text=wanted)
    assert pool.run(other_options, "seeds") == [None] * 4


def unalike(rank: int, _world: int, what: str) -> inrank.Raised | None:
    import bluefog_pg

    odd = rank == 2
    model: Any = nn.Conv2d(2, 2, 3)
    if odd and what == "strides":
        model = model.to(memory_format=torch.channels_last)
    if odd and what == "shape":
        model = nn.Linear(4, 9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"every": 2 if odd else 1} if what == "every" else {}
    return inrank.catch(lambda: bluefog_pg.DistributedOptimizer(optimizer, model, **options))


@pytest.mark.parametrize("what", ["strides", "shape", "every"])
def test_ranks_that_are_not_alike(pool: harness.Pool, what: str) -> None:
    for error in pool.run(unalike, what):
        named = "every: rank 0 has 1, rank 2 2" if what == "every" else "differ in parameters: rank"
        assert error is not None, "was accepted"
        assert error.kind == "ValueError", error
        assert error.text.startswith("[bluefog] rank "), error
        assert named in error.text, error
