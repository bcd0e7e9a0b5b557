"""Parameters may change, be used by some ranks only, or be shared out among several optimizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tests.support import harness
from tests.support.optimizers import (
    OPTIMIZERS,
    STEPS,
    Reference,
    assert_at,
    gathered,
    loss_of,
    make_model,
    matrices,
    shift,
    step,
)

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

    model: Any = make_model(rank)
    optimizers = [
        bluefog_pg.DistributedOptimizer(optimizer, model, **options)
        for (_, optimizer), options in zip(halves(model), PARTS[kind], strict=True)
    ]
    reference = Reference(world, "sgd")
    parts = [halves(other) for other in reference.models]
    for number in range(STEPS):
        model.zero_grad()
        dist.barrier()
        loss_of(model, rank, number).backward()
        dist.barrier()
        for optimizer in optimizers:
            optimizer.step()
        for other, of_rank in enumerate(reference.models):
            of_rank.zero_grad()
            loss_of(of_rank, other, number).backward()
        for half, options in enumerate(PARTS[kind]):
            combine(options, world, *zip(*(of_rank[half] for of_rank in parts), strict=True))
    assert_at(model, reference.vectors()[rank])
    for optimizer in optimizers:
        optimizer.close()


@torch.no_grad()
def combine(options: dict[str, Any], world: int, params: Any, optimizers: Any) -> None:
    """Make one step of all ranks' optimizers of these parameters."""

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


class Branched(nn.Module):
    """A Branched uses each rank's own layer, and no rank uses the last layer."""

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


def converted(rank: int, _world: int) -> None:
    """Parameters may be frozen, thawed, converted and added, and have other memory."""
    import bluefog_pg

    model = make_model(rank)
    frozen, head = model[0].weight, nn.Linear(1, 1).double()
    frozen.requires_grad_(False)
    with torch.no_grad():
        head.weight.fill_(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    whole = nn.ModuleList([model, head])
    optimizer = bluefog_pg.DistributedOptimizer(optimizer, whole, topology="full", order="atc")

    def agree(param: Tensor) -> bool:
        return bool((gathered(param.detach().contiguous()).std(0) < 1e-6).all())

    step(model, optimizer, rank)
    assert not agree(frozen), "a frozen parameter was averaged"
    assert agree(model[2].weight), model[2].weight
    frozen.requires_grad_(True)
    step(model, optimizer, rank)
    assert agree(frozen), "a thawed parameter was not averaged"
    assert not agree(head.weight), "a parameter was averaged before it was added"
    optimizer.add_param_group({"params": head.parameters()})
    model[2].weight.data = torch.full_like(model[2].weight, rank)
    step(model, optimizer, rank)
    assert agree(head.weight), "an added parameter was not averaged"
    assert agree(model[2].weight), "a parameter in new memory was not averaged"
    whole.float()
    shift(whole, rank)
    optimizer.step()
    assert agree(frozen), "a converted parameter was not averaged"
    assert frozen.dtype == torch.float32, frozen.dtype


def test_parameters_change(pool: harness.Pool) -> None:
    pool.run(converted)
