"""This module has a small model, how ranks train it, and what optimizers' recursions make of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import networkx as nx
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

if TYPE_CHECKING:
    from bluefog_pg import optim

STEPS = 6
# These orders go beyond averages, and each of them remembers something.
ALGORITHMS = [
    "GradientTracking",
    "DecentLaM",
    "QuasiGlobalMomentum",
    "ExactDiffusion",
    "LocalSteps",
]


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda params: torch.optim.Adam(params, lr=0.05),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.05),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01),
}


def shift(model: nn.Module, rank: int) -> None:
    """Move the parameters by an amount of the rank's own."""
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.1 * rank)


def make_model(rank: int = 0) -> nn.Module:
    """Return a model whose parameters differ by rank."""
    torch.manual_seed(0)
    model = nn.Sequential(
        # The weight is dense and not contiguous.
        nn.Conv2d(1, 3, 3).to(memory_format=torch.channels_last),
        nn.Flatten(),
        nn.Linear(12, 4),
        nn.Tanh(),
        nn.Linear(4, 1),
    ).double()
    shift(model, rank)
    return model


def loss_of(model: nn.Module, rank: int, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * rank + step)
    x = torch.randn(5, 1, 4, 4, generator=generator, dtype=torch.float64)
    y = torch.randn(5, 1, generator=generator, dtype=torch.float64)
    loss: Tensor = nn.functional.mse_loss(model(x), y)
    return loss


def matrices(topology: Any, world: int) -> Iterator[Tensor]:
    """Yield W of each step: w_ij is the weight of j's parameters at i."""
    import bluefog_pg

    named = {
        "one-peer-exp2": bluefog_pg.topology_util.OnePeerExponentialTwoGraphs(world),
        "ring": [bluefog_pg.topology_util.RingGraph(world)],
        None: [bluefog_pg.topology_util.ExponentialTwoGraph(world)],
        "full": [bluefog_pg.topology_util.FullyConnectedGraph(world)],
    }
    step = 0
    while True:
        graphs = named[topology]
        near = torch.tensor(nx.to_numpy_array(graphs[step % len(graphs)], nodelist=range(world)))
        near = (near.T != 0).double().fill_diagonal_(1)
        yield near / near.sum(1, keepdim=True)
        step += 1


class Reference:
    """A Reference computes the same training of all ranks in this process.

    It owns each rank's model and optimizer.
    """

    def __init__(self, world: int, kind: str) -> None:
        self.models = [make_model(rank) for rank in range(world)]
        self.optimizers = [OPTIMIZERS[kind](model.parameters()) for model in self.models]

    def vectors(self) -> Tensor:
        return torch.stack([parameters_to_vector(m.parameters()).detach() for m in self.models])

    def set(self, vectors: Tensor) -> None:
        for model, vector in zip(self.models, vectors, strict=True):
            vector_to_parameters(vector, model.parameters())

    def differentiate(self, step: int) -> None:
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()

    def update(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def combine(self, order: str, share: Tensor) -> None:
        """Make the updates, and average by w_ij = share[i, j] before or after them."""
        if order == "atc":
            self.update()
        self.set(share @ self.vectors())
        if order == "awc":
            self.update()

    def average_gradients(self) -> None:
        for params in zip(*(model.parameters() for model in self.models), strict=True):
            mean = sum(p.grad for p in params) / len(params)
            for param in params:
                param.grad.copy_(mean)


def expected(world: int, kind: str, communication: str, order: str, topology: Any) -> Tensor:
    reference = Reference(world, kind)
    averages = matrices("full" if communication == "allreduce" else topology, world)
    for step in range(STEPS):
        reference.differentiate(step)
        if communication == "gradient_allreduce":
            reference.average_gradients()
            reference.update()
        elif communication == "empty":
            reference.update()
        else:
            reference.combine(order, next(averages))
    return reference.vectors()


def vector(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach().clone()


def assert_at(model: nn.Module, wanted: Tensor | float, within: float = 1e-12) -> None:
    """Assert that each parameter of the model is nearer than `within` to where it should be."""
    off = (vector(model) - wanted).abs().max().item()
    assert off < within, f"off by {off}"


def gathered(x: Tensor) -> Tensor:
    rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, x)
    return torch.stack(rows)


def wrapped(rank: int, kind: str = "sgd", **options: Any) -> tuple[nn.Module, Any]:
    import bluefog_pg

    model = make_model(rank)
    optimizer = OPTIMIZERS[kind](model.parameters())
    return model, bluefog_pg.DistributedOptimizer(optimizer, model, **options)


def step(model: nn.Module, optimizer: Any, rank: int, number: int = 0) -> None:
    optimizer.zero_grad()
    loss_of(model, rank, number).backward()
    optimizer.step()


def lockstep(model: nn.Module, optimizer: Any, rank: int, number: int) -> None:
    """Make a step that nobody begins before all that windows carry has arrived."""
    optimizer.zero_grad()
    dist.barrier()
    loss_of(model, rank, number).backward()
    dist.barrier()
    optimizer.step()


def order_named(name: str) -> str | optim.Order:
    from bluefog_pg import optim

    return name if name in ("awc", "atc") else getattr(optim, name)()


def turned_within(rank: int, world: int, communication: str) -> None:
    """Assert that a topology set between forward and step() is that of the next average."""
    model, optimizer = wrapped(rank, topology="ring", communication=communication)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    x = gathered(vector(model))
    for number, topology in enumerate(("ring", "full")):
        loss_of(model, rank, number).backward()
        dist.barrier()  # All ranks have put.
        optimizer.set_topology("full")
        optimizer.step()
        x = next(matrices(topology, world)) @ x
        assert_at(model, x[rank])
    optimizer.close()
