"""Distributed optimizers among what programs do beside them."""

from __future__ import annotations

import copy
import os
import time
import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from tests.support import harness, inrank
from tests.support.optimizers import (
    OPTIMIZERS,
    gathered,
    loss_of,
    make_model,
    shift,
    step,
    vector,
    wrapped,
)

pytestmark = harness.only_bluefog


def by_windows(rank: int, _world: int, communication: str) -> None:
    """In lockstep they give what averages of neighbours give."""
    ends = []
    for kind in ("neighbor_allreduce", communication):
        model, optimizer = wrapped(rank, communication=kind, topology="ring", bucket_bytes=200)
        for number in range(4):
            dist.barrier()
            optimizer.zero_grad()
            loss_of(model, rank, number).backward()
            dist.barrier()  # all have put, or got
            optimizer.step()
        ends.append(vector(model))
        optimizer.close()
    off = (ends[0] - ends[1]).abs().max().item()
    assert off < 1e-12, f"off by {off}"


@pytest.mark.parametrize("communication", ["win_put", "win_get"])
def test_windows(pool: harness.Pool, communication: str) -> None:
    pool.run(by_windows, communication)


def one_directed(world: int) -> nx.DiGraph:
    """Ranks send to one, two or three others: averages need push-sum."""
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
    buffers = torch.zeros_like(x)  # of momentum
    for number in range(5):
        z = x / p
        grads = []
        for r in range(world):
            other = make_model()
            nn.utils.vector_to_parameters(z[r], other.parameters())
            loss_of(other, r, number).backward()
            grads.append(parameters_to_vector(p.grad for p in other.parameters()))
        # As torch.optim.SGD does at x.
        grad = torch.stack(grads) + 0.01 * x
        buffers = grad if number == 0 else 0.9 * buffers + grad
        x = share @ (x - 0.1 * buffers)
        p = share @ p
        step(model, optimizer, rank, number)
    off = (vector(model) - x[rank] / p[rank]).abs().max().item()
    assert off < 1e-12, f"off by {off}"
    assert p.std() > 0.1, p


def test_push_sum(pool: harness.Pool) -> None:
    pool.run(by_push_sum)


def in_patterns(rank: int, _world: int, pattern: str, options: dict[str, Any]) -> list[bool]:
    """After each step (s), whether the ranks met; F is a forward and a backward pass."""
    model, optimizer = wrapped(rank, topology="full", every=3, **options)
    for group in optimizer.param_groups:
        group["lr"] = group["weight_decay"] = 0.0
    met = []
    for act in pattern:
        if act == "F":
            loss_of(model, rank, 0).backward()
        else:
            optimizer.step()
            optimizer.zero_grad()
            x = gathered(vector(model))
            met.append(bool((x.std(0) < 1e-9).all()))
            with torch.no_grad():
                shift(model, rank)
    return met


@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize(
    ("pattern", "met"),
    [
        ("FFFsFFFs", [True, True]),
        ("FsFsFsFs", [False, False, True, False]),
        ("FFsFsFFs", [False, True, False]),
        ("FsFFsFs", [False, True, False]),
    ],
)
def test_every_third_pass(pool: harness.Pool, order: str, pattern: str, met: list[bool]) -> None:
    assert pool.run(in_patterns, pattern, {"order": order}) == [met] * 4


def accumulated(rank: int, world: int) -> None:
    """The mean of gradients of several passes, and of their sum."""
    model, optimizer = wrapped(0, communication="gradient_allreduce", every=2)
    plain = make_model()
    for other in range(world):
        for number in range(2):
            (loss_of(plain, other, number) / world).backward()
    for number in range(2):
        loss_of(model, rank, number).backward()
    off = max(
        (mine.grad - wanted.grad).abs().max().item()
        for mine, wanted in zip(model.parameters(), plain.parameters(), strict=True)
    )
    optimizer.step()
    assert off < 1e-12, f"off by {off}"


def test_gradients_are_accumulated(pool: harness.Pool) -> None:
    pool.run(accumulated)


class Branched(nn.Module):
    """Each rank uses its own layer, and nobody the last one."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers[0](self.layers[1 + self.rank](x))
        return out


def unused(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    torch.manual_seed(0)
    model = Branched(rank)
    bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, "gradient_allreduce", bucket_bytes=40
    )
    model(torch.ones(1, 2)).sum().backward()
    return [None if p.grad is None else p.grad.tolist() for p in model.parameters()]


def test_gradients_of_layers_that_only_some_use(pool: harness.Pool) -> None:
    first, *others = pool.run(unused)
    assert all(other == first for other in others)
    assert [grads is None for grads in first] == [False] * 10 + [True] * 2


def scheduled(rank: int, _world: int, before: bool) -> list[Any]:
    """A scheduler, made before or after, changes what the optimizer uses, and does not warn."""
    import bluefog_pg

    model = make_model()
    shift(model, rank)
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.1) if before else None
    optimizer = bluefog_pg.DistributedOptimizer(plain, model, topology="full")
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(model, optimizer, rank)
        scheduler.step()
    start = gathered(vector(model))
    optimizer.zero_grad()
    loss_of(model, rank, 1).backward()
    grads = parameters_to_vector(p.grad for p in model.parameters())
    optimizer.step()
    off = (vector(model) - (start.mean(0) - 0.1 * grads)).abs().max().item()
    return [optimizer.param_groups[0]["lr"], off < 1e-12, grads.norm().item() > 0.1]


@pytest.mark.parametrize("before", [True, False])
def test_schedulers(pool: harness.Pool, before: bool) -> None:
    assert pool.run(scheduled, before) == [[0.1, True, True]] * 4


def scaled(rank: int, _world: int, order: str, unscales: bool) -> list[Any]:
    """Rank 1 has infinite gradients: it skips its update, and takes part in the average."""
    model, optimizer = wrapped(rank, topology="full", order=order)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    start = gathered(vector(model))
    loss = loss_of(model, rank, 0) * (float("inf") if rank == 1 else 1.0)
    scaler.scale(loss).backward()
    if unscales:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    scaler.step(optimizer)
    scaler.update()
    end = gathered(vector(model))
    plain = make_model()
    nn.utils.vector_to_parameters(start[rank].clone(), plain.parameters())
    own = OPTIMIZERS["sgd"](plain.parameters())
    loss_of(plain, rank, 0).backward()
    own.step()
    moves = gathered(vector(plain) - start[rank] if rank != 1 else torch.zeros_like(start[rank]))
    mean = start.mean(0)
    # Weight decay acts on the average in awc.
    if order == "awc":
        wanted = mean + moves[rank] - (0.1 * 0.01 * (mean - start[rank]) if rank != 1 else 0)
    else:
        wanted = (start + moves).mean(0)
    return [
        (end[rank] - wanted).abs().max().item() < 1e-12,
        scaler.get_scale() == (2.0 if rank == 1 else 4.0),
    ]


@pytest.mark.parametrize("order", ["awc", "atc"])
@pytest.mark.parametrize("unscales", [False, True])
def test_gradient_scaler(pool: harness.Pool, order: str, unscales: bool) -> None:
    assert pool.run(scaled, order, unscales) == [[True, True]] * 4


def restored(rank: int, _world: int) -> None:
    """A state_dict goes to the plain optimizer and back; so does a training."""
    model, optimizer = wrapped(rank, "adam")
    for number in range(3):
        step(model, optimizer, rank, number)
    other = make_model()
    other.load_state_dict(model.state_dict())
    plain = OPTIMIZERS["adam"](other.parameters())
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    again, renewed = wrapped(rank, "adam")
    again.load_state_dict(other.state_dict())
    renewed.load_state_dict(plain.state_dict())
    for number in range(3, 6):
        step(model, optimizer, rank, number)
    for number in range(3, 6):
        step(again, renewed, rank, number)
    off = (vector(model) - vector(again)).abs().max().item()
    assert off == 0, f"off by {off}"


def test_checkpoints(pool: harness.Pool) -> None:
    pool.run(restored)


def resumed(rank: int, _world: int, order: str) -> None:
    """With what the algorithm remembers; and without, in the plain optimizer."""
    from bluefog_pg import optim

    model, optimizer = wrapped(rank, order=getattr(optim, order)())
    for number in range(3):
        step(model, optimizer, rank, number)
    other = make_model()
    other.load_state_dict(model.state_dict())
    saved = copy.deepcopy(optimizer.state_dict())
    plain = OPTIMIZERS["sgd"](other.parameters())
    plain.load_state_dict(copy.deepcopy(saved))
    step(other, plain, rank)
    again, renewed = wrapped(rank, order=getattr(optim, order)())
    again.load_state_dict(model.state_dict())
    renewed.load_state_dict(copy.deepcopy(saved))
    for number in range(3, 6):
        step(model, optimizer, rank, number)
        step(again, renewed, rank, number)
    off = (vector(model) - vector(again)).abs().max().item()
    assert off == 0, f"off by {off}"


@pytest.mark.parametrize("order", ["ExactDiffusion", "GradientTracking", "QuasiGlobalMomentum"])
def test_algorithms_are_resumed(pool: harness.Pool, order: str) -> None:
    pool.run(resumed, order)


def saved(rank: int, world: int, path: str) -> list[float]:
    """Averaged first: what is saved once stands for all ranks."""
    import torch.distributed.checkpoint as checkpoint

    import bluefog_pg

    model, optimizer = wrapped(rank, "adam")
    step(model, optimizer, rank)
    bluefog_pg.allreduce_parameters(model.parameters())
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.save(state, checkpoint_id=path)
    return vector(model).tolist()


def loaded(rank: int, world: int, path: str) -> list[float]:
    import torch.distributed.checkpoint as checkpoint

    model, optimizer = wrapped(rank, "adam")
    step(model, optimizer, rank)  # so that there is a state to load into
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.load(state, checkpoint_id=path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    found = vector(model).tolist()
    step(model, optimizer, rank)
    return found


def test_resumed_on_another_world_size(pool: harness.Pool, tmp_path: Path) -> None:
    (first, *_) = pool.run(saved, str(tmp_path))
    assert pool.run(loaded, str(tmp_path), world=3) == [first] * 3


def converted(rank: int, _world: int) -> list[Any]:
    """Frozen, thawed, converted and added parameters; those of another memory."""
    import bluefog_pg

    model = make_model()
    shift(model, rank)
    frozen, head = model[0].weight, nn.Linear(1, 1).double()
    frozen.requires_grad_(False)
    with torch.no_grad():
        head.weight.fill_(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    whole = nn.ModuleList([model, head])
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, whole, topology="full", order="atc")
    found = []

    def agree(param: Tensor) -> bool:
        return bool((gathered(param.detach().contiguous()).std(0) < 1e-6).all())

    step(model, optimizer, rank)
    found.append((agree(frozen), agree(model[2].weight)))
    frozen.requires_grad_(True)
    step(model, optimizer, rank)
    found.append((agree(frozen), agree(head.weight)))
    optimizer.add_param_group({"params": head.parameters()})
    model[2].weight.data = torch.full_like(model[2].weight, rank)
    step(model, optimizer, rank)
    found.append((agree(head.weight), agree(model[2].weight)))
    whole.float()
    shift(whole, rank)
    optimizer.step()
    found.append((agree(frozen), frozen.dtype == torch.float32))
    return found


def test_parameters_change(pool: harness.Pool) -> None:
    wanted = [(False, True), (True, False), (True, True), (True, True)]
    assert pool.run(converted) == [wanted] * 4


class Tied(nn.Module):
    """One Parameter in two places, and an RNN."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.rnn = nn.Linear(3, 3), nn.Linear(3, 3), nn.GRU(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rnn(self.b(self.a(x)))[0]
        return out


def tied(rank: int, _world: int) -> list[bool]:
    """A closure's passes, and gradients that it clips, count as the loop's would.

    synchronize() leaves the averages, which step() does not form again.
    """
    import bluefog_pg

    torch.manual_seed(rank)
    model = Tied().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, model, topology="full")

    def run() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 1, 3, dtype=torch.float64)).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        return loss

    def is_at(wanted: Tensor) -> bool:
        return (vector(model) - wanted).abs().max().item() < 1e-12

    def update() -> Tensor:
        return 0.1 * parameters_to_vector(param.grad for param in model.parameters())

    start = gathered(vector(model))
    loss = optimizer.step(run)
    found = [isinstance(loss, Tensor), is_at(start.mean(0) - update())]
    found.append(abs(update().norm().item() - 1e-4) < 1e-6)
    start = gathered(vector(model))
    run()
    optimizer.synchronize()
    found.append(is_at(start.mean(0)))
    optimizer.step()
    found.append(is_at(start.mean(0) - update()))
    return [*found, model.b.weight is model.a.weight, start.std(0).max().item() > 1e-9]


def test_tied_weights_and_closures(pool: harness.Pool) -> None:
    assert pool.run(tied) == [[True] * 7] * 4


def turned(rank: int, world: int) -> None:
    """Weights of one step, as BlueFog's programs set them; and another communication."""
    model, optimizer = wrapped(rank, topology="ring")
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    start = gathered(vector(model))
    source, to = (rank + 1) % world, (rank - 1) % world
    optimizer.self_weight, optimizer.src_weights, optimizer.dst_weights = 0.25, {source: 0.75}, [to]
    step(model, optimizer, rank)
    first = (vector(model) - 0.25 * start[rank] - 0.75 * start[source]).abs().max().item()
    optimizer.communication = "allreduce"
    step(model, optimizer, rank)
    spread = gathered(vector(model)).std(0).max().item()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert first < 1e-12, f"off by {first}"
    assert spread < 1e-12, f"{spread} apart"


def test_what_is_set_between_steps(pool: harness.Pool) -> None:
    pool.run(turned)


def alone(rank: int, world: int, communication: str) -> None:
    model, optimizer = wrapped(rank, communication=communication)
    plain = make_model()
    own = OPTIMIZERS["sgd"](plain.parameters())
    for number in range(3):
        step(model, optimizer, rank, number)
        step(plain, own, rank, number)
    optimizer.close()
    assert torch.equal(vector(model), vector(plain)), f"{vector(model)}, not {vector(plain)}"


@pytest.mark.parametrize(
    "communication", ["neighbor_allreduce", "win_put", "gradient_allreduce", "push_sum"]
)
def test_one_rank(pool: harness.Pool, communication: str) -> None:
    pool.run(alone, communication, world=1)


def survived(rank: int, world: int) -> None:
    """Rank 2 dies; the others train on, without each other's waiting."""
    model, optimizer = wrapped(rank, communication="win_put", topology="full")
    dist.barrier()
    for number in range(3):
        step(model, optimizer, rank, number)
    inrank.mark("trains")
    inrank.gate("dies")
    if rank == 2:
        os._exit(1)
    time.sleep(0.5)  # until it has
    for group in optimizer.param_groups:
        group["lr"] = group["weight_decay"] = 0.0
    begun = time.monotonic()
    for number in range(3):
        step(model, optimizer, rank, number)
    for turn in range(2):  # what others have put before the first one is gone in the second one
        with torch.no_grad():
            for param in model.parameters():
                param.fill_(1.0)
        inrank.mark(f"filled {turn}")
        for other in (0, 1, 3):
            inrank.await_file(f"at.filled {turn}.{other}")
        step(model, optimizer, rank)
        inrank.mark(f"stepped {turn}")
        for other in (0, 1, 3):
            inrank.await_file(f"at.stepped {turn}.{other}")
    took = time.monotonic() - begun
    far = (vector(model) - 1.0).abs().max().item()
    optimizer.close()
    assert took < harness.at_most(10), f"{took} s"
    assert far < 1e-9, f"off by {far}: the dead rank's parameters still count"


@pytest.mark.slow
def test_training_by_windows_goes_on_when_a_rank_dies() -> None:
    with harness.Ranks(4) as ranks:
        ranks.start(survived, world=4, store="store")
        for rank in range(4):
            ranks.at("trains", rank)
        ranks.open("dies")
        ranks.values(dead={2})
