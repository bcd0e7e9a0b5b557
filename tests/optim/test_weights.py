"""The weights of averages are those that an optimizer is told, or those of its topology."""

from __future__ import annotations

import re
from typing import Any

import networkx as nx
import pytest
import torch.distributed as dist
from torch import nn

from tests.support import harness, inrank
from tests.support.one_weight import ONE, alike_weights, sgd
from tests.support.optimizers import STEPS, assert_at, expected, gathered, step, vector, wrapped


def weighted(rank: int, world: int, communication: str, topology: Any, near: Any) -> float:
    """Return the second average of the ranks' numbers, as the first one has no puts."""
    import bluefog_pg

    model = alike_weights()
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.0), model, communication, topology=topology
    )
    if near:
        optimizer.self_weight = 0.5
        optimizer.src_weights = {(rank - 1) % world: 0.2, (rank + 1) % world: 0.3}
    for _ in range(2):
        nn.init.constant_(model.weight, float(rank))
        dist.barrier()
        model(ONE).sum().backward()
        dist.barrier()
        optimizer.step()
        dist.barrier()
    optimizer.close()
    return model.weight.item()


@pytest.mark.parametrize("communication", ["neighbor_allreduce", "win_put", "win_get"])
def test_weights_count_once(pool: harness.Pool, communication: str) -> None:
    wanted = [0.5 * r + 0.2 * ((r - 1) % 4) + 0.3 * ((r + 1) % 4) for r in range(4)]
    found = pool.run(weighted, communication, "ring", True)
    assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("communication", ["neighbor_allreduce", "win_put", "win_get"])
def test_a_schedule_of_one_graph(pool: harness.Pool, communication: str) -> None:
    """A schedule of one graph is that graph, and its weights count."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((r, (r + 1) % 4, 0.25) for r in range(4))
    graph.add_weighted_edges_from((r, r, 0.75) for r in range(4))
    found = pool.run(weighted, communication, [graph], False)
    assert found == pytest.approx([0.75, 0.75, 1.75, 2.75], abs=1e-12)


def half_said(rank: int, world: int) -> None:
    """A program that says whom it gets from sends to whom its schedule says."""
    import bluefog_pg

    model, optimizer = wrapped(rank, topology="one-peer-exp2")
    sent = bluefog_pg.stats()["bytes_sent"]
    for number in range(STEPS):
        optimizer.self_weight = 0.5
        optimizer.src_weights = {(rank - 2 ** (number % 2)) % world: 0.5}
        step(model, optimizer, rank, number)
    sent = bluefog_pg.stats()["bytes_sent"] - sent
    optimizer.close()
    wanted = expected(world, "sgd", "neighbor_allreduce", "awc", "one-peer-exp2")[rank]
    assert_at(model, wanted)
    size = 8 * vector(model).numel()
    assert sent == STEPS * size, f"{sent} bytes were sent in {STEPS} steps of {size}"


def test_what_knobs_do_not_say_the_topology_does(pool: harness.Pool) -> None:
    pool.run(half_said)


def sent_elsewhere(rank: int, world: int) -> float:
    """Only the ranks to send to are said, so the weights are those of the group's topology."""
    import bluefog_pg

    model = alike_weights(float(rank))
    optimizer = bluefog_pg.DistributedOptimizer(sgd(model, 0.0), model)
    # The topology has the same edges.
    optimizer.dst_weights = [(rank + 1) % world, (rank + 2) % world]
    model(ONE).sum().backward()
    optimizer.step()
    optimizer.close()
    return model.weight.item()


def test_destinations_alone(pool: harness.Pool) -> None:
    wanted = [(r + (r - 1) % 4 + (r - 2) % 4) / 3 for r in range(4)]
    assert pool.run(sent_elsewhere) == pytest.approx(wanted, abs=1e-12)


WRONG_KNOBS: dict[str, tuple[str, dict[str, Any], str]] = {
    "half": ("win_put", {"self_weight": 0.5}, "must be given together"),
    "other half": ("win_put", {"src_weights": {0: 0.5}}, "must be given together"),
    "stranger": ("win_put", {"self_weight": 0.5, "src_weights": {99: 0.5}}, "names ranks .99."),
    "list": ("win_get", {"self_weight": 0.5, "src_weights": [1]}, "must be a dict"),
    "share": ("push_sum", {"self_weight": 0.5}, "goes with dst_weights"),
}


def turned_wrong(rank: int, _world: int, what: str) -> inrank.Raised | None:
    communication, knobs, _ = WRONG_KNOBS[what]
    model, optimizer = wrapped(rank, communication=communication, topology="ring")
    for name, value in knobs.items():
        setattr(optimizer, name, value)
    error = inrank.catch(step, model, optimizer, rank)
    for name in knobs:
        setattr(optimizer, name, None)
    optimizer.close()
    return error


@pytest.mark.parametrize("what", WRONG_KNOBS)
def test_wrong_knobs_are_refused(pool: harness.Pool, what: str) -> None:
    for error in pool.run(turned_wrong, what):
        assert error is not None, "was accepted"
        assert error.kind == "ValueError", error
        assert re.match(f".bluefog. rank .*{WRONG_KNOBS[what][2]}", error.text), error


def turned_between(rank: int, world: int) -> None:
    """Set weights for one step, as BlueFog's programs do, and then another communication."""
    model, optimizer = wrapped(rank, topology="ring")
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    start = gathered(vector(model))
    source, to = (rank + 1) % world, (rank - 1) % world
    optimizer.self_weight, optimizer.src_weights, optimizer.dst_weights = 0.25, {source: 0.75}, [to]
    step(model, optimizer, rank)
    assert_at(model, 0.25 * start[rank] + 0.75 * start[source])
    optimizer.communication = "allreduce"
    step(model, optimizer, rank)
    spread = gathered(vector(model)).std(0).max().item()
    assert spread < 1e-12, f"{spread} apart"


def test_what_is_set_between_steps(pool: harness.Pool) -> None:
    pool.run(turned_between)
