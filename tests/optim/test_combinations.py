"""Distributed optimizers where several things meet: types, groups, turns, and parts of others'."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tests.support import harness, inrank
from tests.support.examples import OF_DIGITS, ROW, need_digits
from tests.support.operations import group_of_machines
from tests.support.optimizers import (
    OPTIMIZERS,
    STEPS,
    Ranks,
    gathered,
    loss_of,
    make_model,
    matrices,
    shift,
    step,
    vector,
    wrapped,
)

if TYPE_CHECKING:
    from bluefog_pg import optim

pytestmark = harness.only_bluefog

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"
Memory = dict[str, Tensor]
# (x, gradients at x, W, learning rates, what it remembers) -> the next x; a row for each rank.
Recursion = Callable[[Tensor, Tensor, Tensor, Any, Memory], Tensor]


def lockstep(model: nn.Module, optimizer: Any, rank: int, number: int) -> None:
    """What goes by windows is there before anybody's step."""
    optimizer.zero_grad()
    dist.barrier()
    loss_of(model, rank, number).backward()
    dist.barrier()
    optimizer.step()


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
    """With momentum 0.9 of SGD's."""
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


def order_named(name: str) -> str | optim.Order:
    from bluefog_pg import optim

    return name if name in ("awc", "atc") else getattr(optim, name)()


def by_machines(rank: int, world: int, order: str) -> None:
    """Two machines, of which each one's mean weighs otherwise at the other; then by the knobs."""
    import bluefog_pg

    machine = rank // 2
    of_means = torch.tensor([[0.75, 0.25], [0.6, 0.4]], dtype=torch.float64)
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(
        (source, to, of_means[to, source].item()) for source in range(2) for to in range(2)
    )
    model, ranks = make_model(), Ranks(world, "sgd")
    shift(model, rank)
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
            ranks.differentiate(number)
            ranks.combine(order, share)
        optimizer.close()
    off = (vector(model) - ranks.vectors()[rank]).abs().max().item()
    assert off < 1e-12, f"off by {off}"


@pytest.mark.slow
@pytest.mark.parametrize("order", ["awc", "atc"])
def test_averages_of_machines(pool: harness.Pool, order: str) -> None:
    pool.run(by_machines, order)


class Mixed(nn.Module):
    """In each of the types the same parameters, whose gradients are the same at each step."""

    def __init__(self, rank: int, dtypes: tuple[torch.dtype, ...]) -> None:
        super().__init__()
        self.rank = rank
        start = rank + torch.tensor([0.0, 0.5, 1.0, -1.0, -0.5])
        self.places = nn.ParameterList(
            nn.Parameter(part.to(dtype)) for part in (start, -start[:3]) for dtype in dtypes
        )

    def forward(self, x: Tensor) -> Tensor:
        return sum(
            (self.rank * x * place.double() * torch.tensor([1.0, 2, -1, 1, 2])[: len(place)]).sum()
            for place in self.places
        )

    def of_types(self) -> list[list[float]]:
        """The parameters of each type, in one."""
        count = len(self.places) // 2
        return [self.places[at].tolist() + self.places[count + at].tolist() for at in range(count)]


MIXED = (torch.float32, torch.float64, torch.bfloat16)
KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "awc": dict,
    "atc": lambda: {"order": "atc"},
    "gradients": lambda: {"communication": "gradient_allreduce"},
    "push-sum": lambda: {"communication": "push_sum"},
    "win_put": lambda: {"communication": "win_put"},
    "win_get": lambda: {"communication": "win_get"},
    "compressed": lambda: {"compression": "bf16"},
    "tracking": lambda: {"order": order_named("GradientTracking")},
    "diffusion": lambda: {"order": order_named("ExactDiffusion")},
    "decentlam": lambda: {"order": order_named("DecentLaM")},
    "local": lambda: {"order": order_named("LocalSteps"), "every": 2},
    "nothing": lambda: {"communication": "empty"},
}


def of_types(
    rank: int, _world: int, kind: str, dtypes: tuple[torch.dtype, ...]
) -> list[list[float]]:
    """All numbers have so few digits that each type has them exactly."""
    import bluefog_pg

    model = Mixed(rank, dtypes)
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.25), model, topology="full", **KINDS[kind]()
    )
    places = [param.data_ptr() for param in model.parameters()]
    for _ in range(2):
        optimizer.zero_grad()
        dist.barrier()
        model(torch.ones(1, dtype=torch.float64)).backward()
        dist.barrier()
        optimizer.step()
    assert [param.dtype for param in model.parameters()] == [*dtypes] * 2
    assert [param.data_ptr() for param in model.parameters()] == places
    optimizer.close()
    return model.of_types()


@pytest.mark.parametrize("kind", KINDS)
def test_types_in_one_model(pool: harness.Pool, kind: str) -> None:
    alone = [wanted for (wanted,) in pool.run(of_types, kind, (torch.float64,))]
    x = torch.tensor(alone, dtype=torch.float64)
    assert torch.equal(x.bfloat16().double(), x)
    assert pool.run(of_types, kind, MIXED) == [[wanted] * 3 for wanted in alone]
    by_themselves = pool.run(of_types, "nothing", (torch.float64,))
    assert (by_themselves == [[wanted] for wanted in alone]) == (kind == "nothing")


PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "alike": ({"topology": "ring"}, {"topology": "ring"}),
    "otherwise": ({"topology": "ring"}, {"topology": "full", "order": "atc"}),
    "windows": (
        {"topology": "ring", "communication": "win_put", "window_prefix": "front"},
        {"topology": "full", "communication": "win_put", "window_prefix": "back"},
    ),
    "windows without prefixes": (
        {"topology": "full", "communication": "win_put"},
        {"topology": "ring", "communication": "win_get"},
    ),
    "gradients": ({"topology": "ring", "order": "atc"}, {"communication": "gradient_allreduce"}),
}


def halves(model: nn.Sequential) -> list[tuple[list[nn.Parameter], torch.optim.Optimizer]]:
    front, back = list(model[0].parameters()), list(model[2:].parameters())
    return [(front, OPTIMIZERS["sgd"](front)), (back, OPTIMIZERS["adam"](back))]


def in_parts(rank: int, world: int, kind: str) -> None:
    """SGD trains the first layer, and Adam the others."""
    import bluefog_pg

    model: Any = make_model()
    shift(model, rank)
    optimizers = [
        bluefog_pg.DistributedOptimizer(optimizer, model, **options)
        for (_, optimizer), options in zip(halves(model), PARTS[kind], strict=True)
    ]
    ranks = Ranks(world, "sgd")
    parts = [halves(other) for other in ranks.models]
    for number in range(STEPS):
        model.zero_grad()
        dist.barrier()
        loss_of(model, rank, number).backward()
        dist.barrier()
        for optimizer in optimizers:
            optimizer.step()
        for other, of_rank in enumerate(ranks.models):
            of_rank.zero_grad()
            loss_of(of_rank, other, number).backward()
        for half, options in enumerate(PARTS[kind]):
            combine(options, world, *zip(*(of_rank[half] for of_rank in parts), strict=True))
    off = (vector(model) - ranks.vectors()[rank]).abs().max().item()
    for optimizer in optimizers:
        optimizer.close()
    assert off < 1e-12, f"off by {off}"


@torch.no_grad()
def combine(options: dict[str, Any], world: int, params: Any, optimizers: Any) -> None:
    """One step of all ranks' optimizers of these parameters."""

    def update() -> None:
        for optimizer in optimizers:
            optimizer.step()

    def average() -> None:
        share = next(matrices(options["topology"], world))
        rows = torch.stack([parameters_to_vector(of_rank) for of_rank in params])
        for of_rank, row in zip(params, share @ rows, strict=True):
            vector_to_parameters(row, of_rank)

    if options.get("communication") == "gradient_allreduce":
        for alike in zip(*params, strict=True):
            mean = sum(param.grad for param in alike) / world
            for param in alike:
                param.grad.copy_(mean)
        update()
        return
    for act in (update, average) if options.get("order") == "atc" else (average, update):
        act()


@pytest.mark.parametrize("kind", PARTS)
def test_optimizers_of_parts_of_a_model(pool: harness.Pool, kind: str) -> None:
    pool.run(in_parts, kind)


def grouped(rank: int, world: int, order: str) -> None:
    """The second group's learning rate is lower, and falls; groups share buckets."""
    import bluefog_pg

    model: Any = make_model()
    shift(model, rank)
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
    off = (vector(model) - x[rank]).abs().max().item()
    assert off < 1e-12, f"off by {off}"


@pytest.mark.slow
@pytest.mark.parametrize("order", RECURSIONS)
def test_groups_of_parameters(pool: harness.Pool, order: str) -> None:
    pool.run(grouped, order)


# Before which step which topology is set; communications are set for step 3, and back.
TOPOLOGIES = {2: "one-peer-exp2", 4: "full", 5: None}


def is_tracked(optimizer: Any, grads: Tensor) -> bool:
    """The trackers' sum over ranks is that of this step's gradients."""
    remembered = optimizer.state_dict()["bluefog"]["memory"]
    trackers, own = (gathered(torch.cat(remembered[name])) for name in ("tracker", "gradient"))
    is_sum = (trackers.sum(0) - own.sum(0)).abs().max().item() < 1e-12
    is_of_step = abs(own.norm().item() - grads.norm().item()) < 1e-12
    return is_sum and is_of_step


def turned(rank: int, world: int, order: str, what: str, communication: str) -> None:
    """The recursion goes on, with another W, and parameters stay where they are."""
    import bluefog_pg

    model = make_model()
    shift(model, rank)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9 * (order == "DecentLaM"))
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd, model, communication, order=order_named(order), topology="ring", bucket_bytes=200
    )
    places = [param.data_ptr() for param in model.parameters()]
    x, memory, averages = gathered(vector(model)), Memory(), matrices("ring", world)
    bad: list[str] = []
    for number in range(STEPS):
        own, share = gradients(x, number), next(averages)
        if what == "topology" and number in TOPOLOGIES:
            optimizer.set_topology(TOPOLOGIES[number])
            averages = matrices(TOPOLOGIES[number], world)
            share = next(averages)
        elif what != "topology" and number in (3, 4):
            optimizer.communication = what if number == 3 else communication
        if number == 3 and what == "allreduce":
            share = next(matrices("full", world))
        if number == 3 and what in ("gradient_allreduce", "empty"):
            x = x - 0.05 * (own if what == "empty" else own.mean(0))
        else:
            x = RECURSIONS[order](x, own, share, 0.05, memory)
        lockstep(model, optimizer, rank, number)
        off = (vector(model) - x[rank]).abs().max().item()
        if not off <= 1e-12:
            bad.append(f"step {number}: off by {off}")
        if order == "GradientTracking" and not is_tracked(optimizer, own):
            bad.append(f"step {number}: trackers do not sum to the gradients")
    if [param.data_ptr() for param in model.parameters()] != places:
        bad.append("parameters moved")
    optimizer.close()
    assert not bad, bad


@pytest.mark.slow
@pytest.mark.parametrize("what", ["topology", "allreduce"])
@pytest.mark.parametrize("order", RECURSIONS)
def test_turned_between_steps(pool: harness.Pool, order: str, what: str) -> None:
    pool.run(turned, order, what, "neighbor_allreduce")


@pytest.mark.parametrize("what", ["gradient_allreduce", "empty"])
@pytest.mark.parametrize("order", ["awc", "atc"])
def test_no_averages_for_a_step(pool: harness.Pool, order: str, what: str) -> None:
    pool.run(turned, order, what, "neighbor_allreduce")


@pytest.mark.parametrize("communication", ["win_put", "win_get"])
def test_windows_give_way_for_a_step(pool: harness.Pool, communication: str) -> None:
    pool.run(turned, "awc", "allreduce", communication)


def turned_within(rank: int, world: int, communication: str) -> None:
    """A topology that is set between forward and step() is that of the next average."""
    model, optimizer = wrapped(rank, topology="ring", communication=communication)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    x, bad = gathered(vector(model)), list[str]()
    for number, topology in enumerate(("ring", "full")):
        loss_of(model, rank, number).backward()
        dist.barrier()  # all have put
        optimizer.set_topology("full")
        optimizer.step()
        x = next(matrices(topology, world)) @ x
        off = (vector(model) - x[rank]).abs().max().item()
        if not off <= 1e-12:
            bad.append(f"step {number}: off by {off}")
    optimizer.close()
    assert not bad, bad


@pytest.mark.parametrize("communication", ["neighbor_allreduce", "win_put"])
def test_a_topology_is_that_of_the_next_average(pool: harness.Pool, communication: str) -> None:
    pool.run(turned_within, communication)


@functools.cache
def twice() -> type[optim.Order]:
    from bluefog_pg import optim

    class AdaptThenCombineTwice(optim.Order):
        """w <- average(average(w - the update at w)), and counts."""

        communications = ("neighbor_allreduce",)
        exchanges_at_each_pass = True

        def open(self, site: Any) -> None:
            super().open(site)
            self._averages = torch.zeros(1)

        def memory(self) -> dict[str, list[Tensor]]:
            return {"averages": [self._averages]}

        def step(self, update: Callable[[], None]) -> None:
            update()
            for _ in range(2):
                self.site.exchange(self.site.parameters()).finish()
                self._averages.add_(1)

    return AdaptThenCombineTwice


def by_own_order(rank: int, world: int) -> None:
    """Each average is a step of the schedule, and what it remembers goes with the state."""
    options = {"topology": "one-peer-exp2", "bucket_bytes": 200}
    model, optimizer = wrapped(rank, order=twice()(), **options)
    ranks, averages = Ranks(world, "sgd"), matrices("one-peer-exp2", world)
    for number in range(STEPS):
        step(model, optimizer, rank, number)
        ranks.differentiate(number)
        ranks.update()
        ranks.set(next(averages) @ next(averages) @ ranks.vectors())
    off = (vector(model) - ranks.vectors()[rank]).abs().max().item()
    exchanges = optimizer.tally.exchanges
    other, resumed = wrapped(rank, order=twice()(), **options)
    resumed.load_state_dict(optimizer.state_dict())
    step(other, resumed, rank)
    (averages_of_both,) = resumed.state_dict()["bluefog"]["memory"]["averages"]
    errors = [
        inrank.catch(setattr, optimizer, "communication", "allreduce"),
        inrank.catch(wrapped, rank, order=twice()(), every=2),
    ]
    assert off < 1e-12, f"off by {off}"
    assert exchanges == 2 * STEPS, f"{exchanges} exchanges"
    assert averages_of_both.item() == 2 * STEPS + 2, f"{averages_of_both} averages"
    kinds = [error.kind if error else "nothing" for error in errors]
    assert kinds == ["ValueError"] * 2, errors


def test_an_order_of_ones_own(pool: harness.Pool) -> None:
    pool.run(by_own_order)


class HalfWay:
    """Sends all, and goes half of the way to the average."""

    gamma = 0.5

    def __init__(self) -> None:
        self.compressed = 0

    def compress(self, tensor: Tensor) -> Tensor:
        self.compressed += 1
        return tensor.clone().view(torch.uint8)

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        return message.view(like.dtype)


def by_own_compressor(rank: int, world: int, order: str) -> None:
    compressor = HalfWay()
    model, optimizer = wrapped(rank, topology="ring", order=order, compression=compressor)
    ranks = Ranks(world, "sgd")
    share = (torch.eye(world, dtype=torch.float64) + next(matrices("ring", world))) / 2
    for number in range(STEPS):
        step(model, optimizer, rank, number)
        ranks.differentiate(number)
        ranks.combine(order, share)
    off = (vector(model) - ranks.vectors()[rank]).abs().max().item()
    assert off < 1e-12, f"off by {off}"
    assert compressor.compressed == STEPS, f"compressed {compressor.compressed} times"


@pytest.mark.parametrize("order", ["awc", "atc"])
def test_a_compressor_of_ones_own(pool: harness.Pool, order: str) -> None:
    pool.run(by_own_compressor, order)


MODES = {
    "hierarchical_neighbor_allreduce": (),
    "allreduce": ("--order", "atc"),
    "gradient_allreduce": (),
    "win_put": ("--topology", "ring"),
    "win_get": (),
    "push_sum": (),
    "empty": (),
}


def by_example(rank: int, _world: int, out: str, ports: list[int]) -> dict[str, str]:
    """What the example prints of each communication."""
    sys.path.insert(0, str(EXAMPLE.parent))
    told = {}
    for (mode, args), port in zip(MODES.items(), ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        sys.argv = [str(EXAMPLE), "--mode", mode, "--epochs", "2", "--out", out, *args]
        sys.argv += ["--require-accuracy", "0.6"]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        told[mode] = printed.getvalue()
    return told


@pytest.mark.slow
def test_each_communication_of_the_example(tmp_path: Path) -> None:
    """With any, ranks stay nearer to each other than with none, and all learn."""
    need_digits()
    with harness.Ranks(2, modules=OF_DIGITS) as ranks:
        ranks.start(by_example, str(tmp_path), [harness.free_port() for _ in MODES])
        told = ranks.values()[0]
    distances = {}
    for mode, out in told.items():
        sent = [count.replace(",", "") for *_, count in ROW.findall(out)]
        assert len(sent) == 2, out
        if mode.startswith("win"):
            assert sent == ["-", "-"], out
        else:
            assert all((int(count) < 10_000) == (mode == "empty") for count in sent), out
        assert (tmp_path / f"train_digits_{mode}.png").exists(), out
        distances[mode] = float(out.split("consensus distance ")[1].split()[0])
    apart = distances.pop("empty")
    assert distances.pop("gradient_allreduce") == 0
    assert max(distances.values()) < apart / 2, distances
