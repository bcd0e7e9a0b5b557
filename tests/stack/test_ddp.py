"""DDP on bluefog loses what DDP on gloo loses: 50 steps, the same data, the same processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support import harness, stack

STEPS = 50


class Twice(nn.Module):
    """A Twice applies one layer twice.

    Its gradient is ready twice, which a static graph allows for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = stack.mlp()[0], stack.mlp()[2], stack.mlp()[4]

    def forward(self, x: Tensor, _step: int) -> Tensor:
        x = torch.tanh(self.first(x))
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(self._hidden, x, use_reentrant=True)
        return self.last(x)

    def _hidden(self, x: Tensor) -> Tensor:
        return torch.tanh(self.middle(x))


class Branches(nn.Module):
    """A Branches uses one branch or the other, ranks differ in which, and a third is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleList([stack.mlp(), stack.mlp(16), stack.mlp()])

    def forward(self, x: Tensor, step: int) -> Tensor:
        return self.ways[(step // 3 + dist.get_rank()) % 2](x)


class Plain(nn.Module):
    def __init__(self, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = net or stack.mlp()

    def forward(self, x: Tensor, _step: int) -> Tensor:
        return self.net(x)


class Normed(Plain):
    """A Normed has buffers: before each step, all ranks get rank 0's running means.

    The ranks see other rows than rank 0 does.
    """

    def __init__(self) -> None:
        layers = list(stack.mlp())
        super().__init__(nn.Sequential(layers[0], nn.BatchNorm1d(24), *layers[1:]))


class Words(nn.Module):
    """A Words has sparse gradients: rows of a table, a few of which each rank touches."""

    def __init__(self, sparse: bool = True) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.table = nn.EmbeddingBag(40, 24, mode="sum", sparse=sparse)
        self.head = nn.Linear(24, stack.WIDTH)

    def forward(self, x: Tensor, _step: int) -> Tensor:
        rows = (x + 2.5).long().clamp(0, 4) + 5 * torch.arange(stack.WIDTH)
        return self.head(self.table(rows))


def allreduce(net: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    net.register_comm_hook(group, allreduce_hook)


def fp16(net: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    net.register_comm_hook(group, fp16_compress_hook)


def power_sgd(net: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    """Register powerSGD's hook, whose callbacks run all-reduces of their own and wait for them."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks

    state = hooks.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=5)
    net.register_comm_hook(state, hooks.powerSGD_hook)


@dataclass(frozen=True)
class Variant:
    net: Callable[[], nn.Module] = Plain
    theirs: Callable[[], nn.Module] | None = None  # what gloo trains, if it is not the same
    ddp: dict[str, Any] = field(default_factory=dict)
    hook: Callable[[DistributedDataParallel, dist.ProcessGroup], None] | None = None
    backwards: int = 1  # backward passes of a step, of which all but the last are under no_sync
    tolerance: float = 1e-6


VARIANTS = {
    "plain": Variant(),
    "accumulation": Variant(backwards=3),
    "static_graph": Variant(Twice, ddp={"static_graph": True}),
    "find_unused_parameters": Variant(Branches, ddp={"find_unused_parameters": True}),
    "buffers": Variant(Normed),
    # gloo of torch 2.13 corrupts the heap in one of 300 such trainings, so its gradients are dense.
    "sparse": Variant(Words, theirs=lambda: Words(sparse=False)),
    "bucket_views": Variant(ddp={"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}),
    "hook_allreduce": Variant(hook=allreduce),
    "hook_fp16": Variant(hook=fp16, tolerance=2e-3),
    # There is one bucket, as callbacks of several would issue operations in no program's order.
    "hook_power_sgd": Variant(hook=power_sgd, tolerance=1e-5),
}


def train(
    variant: Variant, net: nn.Module, group: dist.ProcessGroup
) -> tuple[list[float], nn.Module]:
    rank, world = dist.get_rank(), dist.get_world_size()
    net = DistributedDataParallel(net, process_group=group, **variant.ddp)
    if variant.hook:
        variant.hook(net, group)
    optimizer = stack.momentum(net)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = stack.share(step, rank, world)
        with net.no_sync():
            for _ in range(variant.backwards - 1):
                nn.functional.mse_loss(net(x, step), y).backward()
        loss = nn.functional.mse_loss(net(x, step), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, net.module


@dataclass(frozen=True)
class Compared:
    gloo: list[float]
    ours: list[float]
    states: float  # the distance between the two nets at the end, buffers included
    ranks: float  # the distance of this rank's net from rank 0's
    operations: int


def compare(rank: int, world: int, name: str) -> Compared:
    variant = VARIANTS[name]
    with stack.group_of("gloo") as gloo:
        theirs, reference = train(variant, (variant.theirs or variant.net)(), gloo)
        before = stack.operations()
        ours, net = train(variant, variant.net(), dist.group.WORLD)
        operations = stack.operations() - before
        first = [p.detach().clone() for p in net.parameters()]
        for p in first:
            dist.broadcast(p, 0, group=gloo)
    states = stack.distance(net.state_dict().values(), reference.state_dict().values())
    return Compared(theirs, ours, states, stack.distance(net.parameters(), first), operations)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("world", [2, 4])
def test_fifty_losses_are_those_of_gloo(pool: harness.Pool, world: int, name: str) -> None:
    """Every rank's losses and final state are gloo's; all ranks hold one net; the loss falls."""
    tolerance = VARIANTS[name].tolerance
    for got in pool.run(compare, name, world=world):
        assert len(got.ours) == STEPS
        assert got.ours == pytest.approx(got.gloo, rel=tolerance, abs=tolerance)
        assert got.states <= 10 * tolerance
        assert got.ranks == 0
        assert sum(got.ours[-5:]) < 0.7 * sum(got.ours[:5]), "learned nothing"
        assert got.operations >= STEPS
