"""Distributed optimizers do, step by step, the recursions that their names stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tests.support import harness, inrank
from tests.support.operations import group_of_machines
from tests.support.optimizers import (
    OPTIMIZERS,
    STEPS,
    Reference,
    assert_at,
    expected,
    gathered,
    lockstep,
    loss_of,
    make_model,
    matrices,
    order_named,
    step,
    turned_within,
    vector,
    wrapped,
)


def trained(rank: int, world: int, kind: str, options: dict[str, Any]) -> None:
    import bluefog_pg

    model = make_model(rank)
    plain = OPTIMIZERS[kind](model.parameters())
    optimizer = bluefog_pg.DistributedOptimizer(plain, model, **options)
    assert optimizer is plain, optimizer
    assert isinstance(optimizer, type(OPTIMIZERS[kind]([nn.Parameter()]))), type(optimizer)
    for number in range(STEPS):
        step(model, optimizer, rank, number)
    wanted = expected(
        world,
        kind,
        options.get("communication", "neighbor_allreduce"),
        options.get("order", "awc"),
        options.get("topology"),
    )[rank]
    assert_at(model, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize("topology", [None, "ring", "one-peer-exp2"])
def test_averages_of_neighbors(pool: harness.Pool, kind: str, order: str, topology: Any) -> None:
    options = {"order": order, "topology": topology, "bucket_bytes": 200}
    pool.run(trained, kind, options)


@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize("communication", ["allreduce", "gradient_allreduce", "empty"])
def test_averages_of_all(pool: harness.Pool, communication: str, order: str) -> None:
    options = {"order": order, "communication": communication}
    pool.run(trained, "sgd", options)


Memory = dict[str, Tensor]

# A Recursion gives the next x from x, the gradients at x, W, learning rates and its memory. Tensors
# have a row for each rank.
Recursion = Callable[[Tensor, Tensor, Tensor, Any, Memory], Tensor]


def gradients(x: Tensor, number: int) -> Tensor:
    rows = []
    for rank, row in enumerate(x):
        model = make_model()
        vector_to_parameters(row.clone(), model.parameters())
        loss_of(model, rank, number).backward()
        rows.append(parameters_to_vector(param.grad for param in model.parameters()))
    return torch.stack(rows)


def combined(x: Tensor, grads: Tensor, share: Tensor, lr: Any, memory: Memory) -> Tensor:
    return share @ x - lr * grads


def diffused(x: Tensor, grads: Tensor, share: Tensor, lr: Any, memory: Memory) -> Tensor:
    return share @ (x - lr * grads)


def tracked(x: Tensor, grads: Tensor, share: Tensor, lr: Any, memory: Memory) -> Tensor:
    nothing = torch.zeros_like(x)
    y = share @ memory.get("y", nothing) + grads - memory.get("gradient", nothing)
    memory.update(y=y, gradient=grads)
    return share @ x - lr * y


def corrected(x: Tensor, grads: Tensor, share: Tensor, lr: Any, memory: Memory) -> Tensor:
    psi = x - lr * grads
    z = psi + x - memory.get("psi", x)
    memory["psi"] = psi
    return (z + share @ z) / 2


def moved(x: Tensor, grads: Tensor, share: Tensor, lr: Any, memory: Memory) -> Tensor:
    move = memory.get("move", torch.zeros_like(x))
    after = share @ (x - lr * (grads + 0.9 * move))
    memory["move"] = 0.9 * move + 0.1 * (x - after) / lr
    return after


def bent(x: Tensor, grads: Tensor, share: Tensor, lr: Any, memory: Memory) -> Tensor:
    """Return the next x where SGD's momentum of 0.9 acts on the moves of diffusion."""
    gradient = (x - share @ (x - lr * grads)) / lr
    memory["buffer"] = 0.9 * memory.get("buffer", torch.zeros_like(x)) + gradient
    return x - lr * memory["buffer"]


RECURSIONS: dict[str, Recursion] = {
    "awc": combined,
    "atc": diffused,
    "GradientTracking": tracked,
    "ExactDiffusion": corrected,
    "QuasiGlobalMomentum": moved,
    "DecentLaM": bent,
}


def by_machines(rank: int, world: int, order: str) -> None:
    """Train on two machines, whose means weigh differently at each other; then by the knobs."""
    import bluefog_pg

    machine = rank // 2
    of_means = torch.tensor([[0.75, 0.25], [0.6, 0.4]], dtype=torch.float64)
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(
        (source, to, of_means[to, source].item()) for source in range(2) for to in range(2)
    )
    model, reference = make_model(rank), Reference(world, "sgd")
    with group_of_machines(2) as group:
        bluefog_pg.set_machine_topology(graph, True, group)
        optimizer = bluefog_pg.DistributedOptimizer(
            OPTIMIZERS["sgd"](model.parameters()),
            model,
            "hierarchical_neighbor_allreduce",
            order=order,
            bucket_bytes=200,
            group=group,
        )
        for number in range(STEPS):
            if number == STEPS - 2:
                of_means = torch.tensor([[0.5, 0.5], [0.125, 0.875]], dtype=torch.float64)
                optimizer.self_weight = of_means[machine, machine].item()
                optimizer.src_machine_weights = {1 - machine: of_means[machine, 1 - machine].item()}
                optimizer.dst_machine_weights = [1 - machine]
            step(model, optimizer, rank, number)
            share = torch.kron(of_means, torch.full((2, 2), 0.5, dtype=torch.float64))
            reference.differentiate(number)
            reference.combine(order, share)
        optimizer.close()
    assert_at(model, reference.vectors()[rank])


@pytest.mark.slow
@pytest.mark.parametrize("order", ["awc", "atc"])
def test_averages_of_machines(pool: harness.Pool, order: str) -> None:
    pool.run(by_machines, order)


def grouped(rank: int, world: int, order: str) -> None:
    """The second group's learning rate is lower, and falls; groups share buckets."""
    import bluefog_pg

    model: Any = make_model(rank)
    groups = [
        {"params": [*model[0].parameters(), model[4].bias], "lr": 0.1},
        {"params": [*model[2].parameters(), model[4].weight], "lr": 0.03},
    ]
    sgd = torch.optim.SGD(groups, momentum=0.9 if order == "DecentLaM" else 0.0)
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd, model, order=order_named(order), topology="ring"
    )
    x, memory, share = gathered(vector(model)), Memory(), next(matrices("ring", world))
    for number in range(STEPS):
        if number == 3:
            optimizer.param_groups[1]["lr"] = 0.01
        first = {id(param) for param in optimizer.param_groups[0]["params"]}
        rates = [
            0.1 if id(p) in first else 0.03 if number < 3 else 0.01 for p in model.parameters()
        ]
        lr = torch.cat(
            [
                torch.full((param.numel(),), rate, dtype=torch.float64)
                for param, rate in zip(model.parameters(), rates, strict=True)
            ]
        )
        x = RECURSIONS[order](x, gradients(x, number), share, lr, memory)
        step(model, optimizer, rank, number)
    assert_at(model, x[rank])


@pytest.mark.slow
@pytest.mark.parametrize("order", RECURSIONS)
def test_groups_of_parameters(pool: harness.Pool, order: str) -> None:
    pool.run(grouped, order)


# A topology is set before the step of its number. Communications are set for step 3, and back.
TOPOLOGIES = {2: "one-peer-exp2", 4: "full", 5: None}


def assert_tracked(optimizer: Any, grads: Tensor) -> None:
    """Assert that the trackers' sum over ranks is that of this step's gradients."""
    remembered = optimizer.state_dict()["bluefog"]["memory"]
    trackers, own = (gathered(torch.cat(remembered[name])) for name in ("tracker", "gradient"))
    off = (trackers.sum(0) - own.sum(0)).abs().max().item()
    assert off < 1e-12, f"trackers sum to {off} more or less than the gradients"
    sizes = own.norm().item(), grads.norm().item()
    assert abs(sizes[0] - sizes[1]) < 1e-12, f"gradients of norm {sizes[0]}, not {sizes[1]}"


def turned(rank: int, world: int, order: str, what: str) -> None:
    """The recursion goes on, with another W, and parameters stay where they are."""
    import bluefog_pg

    model = make_model(rank)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9 * (order == "DecentLaM"))
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd, model, order=order_named(order), topology="ring", bucket_bytes=200
    )
    places = [param.data_ptr() for param in model.parameters()]
    x, memory, averages = gathered(vector(model)), Memory(), matrices("ring", world)
    for number in range(STEPS):
        own, share = gradients(x, number), next(averages)
        if what == "topology" and number in TOPOLOGIES:
            optimizer.set_topology(TOPOLOGIES[number])
            averages = matrices(TOPOLOGIES[number], world)
            share = next(averages)
        elif what != "topology" and number in (3, 4):
            optimizer.communication = what if number == 3 else "neighbor_allreduce"
        if number == 3 and what == "allreduce":
            share = next(matrices("full", world))
        if number == 3 and what in ("gradient_allreduce", "empty"):
            x = x - 0.05 * (own if what == "empty" else own.mean(0))
        else:
            x = RECURSIONS[order](x, own, share, 0.05, memory)
        lockstep(model, optimizer, rank, number)
        assert_at(model, x[rank])
        if order == "GradientTracking":
            assert_tracked(optimizer, own)
    assert [param.data_ptr() for param in model.parameters()] == places, "parameters moved"
    optimizer.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["topology", "allreduce"])
@pytest.mark.parametrize("order", RECURSIONS)
def test_turned_between_steps(pool: harness.Pool, order: str, what: str) -> None:
    pool.run(turned, order, what)


@pytest.mark.parametrize("what", ["gradient_allreduce", "empty"])
@pytest.mark.parametrize("order", ["awc", "atc"])
def test_no_averages_for_a_step(pool: harness.Pool, order: str, what: str) -> None:
    pool.run(turned, order, what)


def test_a_topology_is_that_of_the_next_average(pool: harness.Pool) -> None:
    pool.run(turned_within, "neighbor_allreduce")


def one_directed(world: int) -> nx.DiGraph:
    """Return a graph in which ranks send to one, two or three others: averages need push-sum."""
    graph = nx.DiGraph((r, (r + d) % world) for r in range(world) for d in range(1, r % 3 + 2))
    graph.add_edges_from((r, (r + 1) % world) for r in range(world))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


def by_push_sum(rank: int, world: int) -> None:
    graph = one_directed(world)
    model, optimizer = wrapped(rank, communication="push_sum", topology=graph)
    x = gathered(vector(model))
    share = torch.zeros(world, world, dtype=torch.float64)
    for source in graph:
        for to in [source, *graph.successors(source)]:
            share[to, source] = 1 / (graph.out_degree(source) + 1)
    p = torch.ones(world, 1, dtype=torch.float64)
    buffers = torch.zeros_like(x)  # momentum buffers
    for number in range(5):
        z = x / p
        grads = []
        for r in range(world):
            other = make_model()
            nn.utils.vector_to_parameters(z[r], other.parameters())
            loss_of(other, r, number).backward()
            grads.append(parameters_to_vector(p.grad for p in other.parameters()))
        # torch.optim.SGD adds the weight decay and the momentum at x, too.
        grad = torch.stack(grads) + 0.01 * x
        buffers = grad if number == 0 else 0.9 * buffers + grad
        x = share @ (x - 0.1 * buffers)
        p = share @ p
        step(model, optimizer, rank, number)
    assert_at(model, x[rank] / p[rank])
    assert p.std() > 0.1, p


def test_push_sum(pool: harness.Pool) -> None:
    pool.run(by_push_sum)


def in_backward(rank: int, world: int) -> None:
    from bluefog_pg import optim

    model, optimizer = wrapped(
        rank, order=optim.AdaptThenCombine(in_backward=True), topology="ring", bucket_bytes=200
    )
    for number in range(STEPS):
        step(model, optimizer, rank, number)
    wanted = expected(world, "sgd", "neighbor_allreduce", "atc", "ring")[rank]
    assert_at(model, wanted)
    loss_of(model, rank, 0).backward()
    moved = vector(model)
    twice = inrank.catch(lambda: loss_of(model, rank, 0).backward())
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    scaled = inrank.catch(scaler.step, optimizer)
    optimizer.step()
    optimizer.close()
    assert twice is not None, "a second backward pass was accepted"
    assert "second backward() before step()" in twice.text, twice
    assert scaled is not None, "a GradScaler was accepted"
    assert "before the GradScaler" in scaled.text, scaled
    assert not torch.equal(moved, vector(model)), "was not averaged"


def test_updates_in_backward(pool: harness.Pool) -> None:
    pool.run(in_backward)
