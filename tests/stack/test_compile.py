"""What communicates gives the same numbers by torch.compile, in code that g++ compiled."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support import harness, stack

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")

STEPS = 4


@dataclass(frozen=True)
class Compiled:
    losses: list[float]
    eager: list[float]
    distance: float
    operations: int
    eager_operations: int
    graphs: int  # graphs that inductor was given


class Own(nn.Module):
    """An Own is a module of our own, as Dynamo passes over torch's when DDP calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = stack.mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Exchanging(Own):
    """An Exchanging calls all functional collectives between its layers."""

    def forward(self, x: Tensor) -> Tensor:
        import torch.distributed._functional_collectives as funcol

        world, group = dist.get_world_size(), dist.group.WORLD
        mean = funcol.all_reduce(x.detach().mean(0), "sum", group) / world
        h = torch.tanh(self.layers[0](x - mean))
        mine = h.detach().chunk(world, 1)[dist.get_rank()].contiguous()
        all_rows = funcol.all_gather_tensor(mine, 0, group)
        mixed = funcol.reduce_scatter_tensor(all_rows, "avg", 0, group)
        swapped = funcol.all_to_all_single(h.detach(), None, None, group)
        return self.layers[2:](torch.tanh(h + mixed.mean() + swapped.mean()))


def counted_inductor(calls: list[int]) -> object:
    from torch._inductor.compile_fx import compile_fx

    def compiler(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        calls.append(len(graph.graph.nodes))
        return compile_fx(graph, inputs)

    return compiler


def train(net: nn.Module, rank: int, world: int) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = stack.share(step, rank, world)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compiled(rank: int, world: int, ddp: bool) -> Compiled:
    import torch._dynamo
    import torch._functorch.config
    import torch._inductor.config

    torch._inductor.config.compile_threads = 1  # No workers outlive the test.
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    torch._dynamo.reset()
    one, other = (Own() if ddp else Exchanging() for _ in range(2))
    calls: list[int] = []
    counts = [stack.operations()]
    eager = train(DistributedDataParallel(one) if ddp else one, rank, world)
    counts.append(stack.operations())
    wrapped = DistributedDataParallel(other) if ddp else other
    quick = torch.compile(wrapped, backend=counted_inductor(calls), fullgraph=not ddp)
    losses = train(quick, rank, world)
    counts.append(stack.operations())
    gap = stack.distance(one.parameters(), other.parameters())
    torch._dynamo.reset()
    return Compiled(losses, eager, gap, counts[2] - counts[1], counts[1] - counts[0], len(calls))


@pytest.mark.slow
@pytest.mark.parametrize("ddp", [False, True], ids=["functional_collectives", "ddp"])
def test_compiled_trains_as_eager(ddp: bool) -> None:
    """Inductor compiled it, in one graph; it issued the same number of operations."""
    with harness.Ranks(2, modules=("torch._inductor.compile_fx",)) as ranks:
        ranks.start(compiled, ddp, world=2, store="s")
        told = ranks.values(120).values()
    for got in told:
        assert got.graphs >= 1
        assert got.losses == pytest.approx(got.eager, rel=1e-5)
        assert got.distance < 1e-5
        assert got.operations == got.eager_operations


def decentralized(rank: int, world: int, order: str) -> float:
    """Train with a compiled loss and with the plain one, alike; a full graph is refused."""
    import bluefog_pg

    def train(compile_: Any) -> list[Tensor]:
        torch._dynamo.reset()  # This drops what was compiled of this function before.
        torch.manual_seed(0)
        model = nn.Linear(5, 1)
        torch.manual_seed(rank)
        sgd = torch.optim.SGD(model.parameters(), lr=0.05)
        optimizer = bluefog_pg.DistributedOptimizer(sgd, model, order=order)
        loss = compile_(lambda x: (model(x) - x.sum(1, keepdim=True)).square().mean())
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(torch.randn(16, 5)).backward()
            optimizer.step()
        optimizer.close()
        return [p.detach() for p in model.parameters()]

    quick = train(partial(torch.compile, backend="eager"))
    gap = stack.distance(quick, train(lambda loss: loss))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="compile without fullgraph=True"):
        train(partial(torch.compile, backend="eager", fullgraph=True))
    torch._dynamo.reset()
    return gap


@pytest.mark.parametrize("order", ["awc", "atc"])
def test_distributed_optimizers_hear_of_compiled_passes(order: str) -> None:
    with harness.Ranks(2, modules=("torch._dynamo",)) as ranks:
        ranks.start(decentralized, order, world=2, store="s")
        assert max(ranks.values(60).values()) < 1e-6
