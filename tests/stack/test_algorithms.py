"""Torch's algorithms around DDP do, step by step, what their definitions say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support import harness, stack

STEPS = 14


@dataclass(frozen=True)
class Told:
    losses: list[float]
    want: list[float]
    distance: float  # between this rank's parameters and what they should be
    operations: int

    def check(self, steps: int) -> None:
        assert len(self.losses) == steps
        assert self.losses == pytest.approx(self.want, rel=1e-5)
        assert self.distance < 1e-5
        assert self.operations > 0


def loss_of(net: nn.Module, step: int, rank: int, world: int) -> Tensor:
    x, y = stack.share(step, rank, world)
    return nn.functional.mse_loss(net(x), y)


def gradients(net: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(net.parameters())))


def mean(several: Iterable[Iterable[Tensor]], divisor: int) -> list[Tensor]:
    return [torch.stack(same).sum(0) / divisor for same in zip(*several, strict=True)]


def assign(net: nn.Module, values: list[Tensor], grad: bool = False) -> None:
    for p, value in zip(net.parameters(), values, strict=True):
        if grad:
            p.grad = value.clone()
        else:
            p.data.copy_(value)


# -- post-local SGD: averages all gradients, later only those of a pair, and sometimes the models --

LOCAL_FROM, PERIOD = 4, 3


def post_local(rank: int, world: int) -> Told:
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
        PostLocalSGDState,
        post_localSGD_hook,
    )
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    before = stack.operations()
    pair, _ = dist.new_subgroups(2)
    net = DistributedDataParallel(stack.mlp())
    net.register_comm_hook(PostLocalSGDState(None, pair, LOCAL_FROM), post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(
        stack.momentum(net), PeriodicModelAverager(PERIOD, warmup_steps=LOCAL_FROM)
    )
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(net, step, rank, world)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    want, nets = post_local_alone(world)
    gap = stack.distance(net.parameters(), nets[rank].parameters())
    return Told(losses, want[rank], gap, stack.operations() - before)


def post_local_alone(world: int) -> tuple[list[list[float]], list[nn.Module]]:
    """Train all ranks' models in this process, and return their losses and the models."""
    nets = [stack.mlp() for _ in range(world)]
    optimizers = [stack.momentum(net) for net in nets]
    losses: list[list[float]] = [[] for _ in nets]
    for step in range(STEPS):
        each = [loss_of(net, step, r, world) for r, net in enumerate(nets)]
        grads = [gradients(net, loss) for net, loss in zip(nets, each, strict=True)]
        for r, net in enumerate(nets):
            near = range(world) if step < LOCAL_FROM else range(r - r % 2, r - r % 2 + 2)
            assign(net, mean((grads[q] for q in near), len(near)), grad=True)
            optimizers[r].step()
            losses[r].append(each[r].item())
        if step >= LOCAL_FROM and (step - LOCAL_FROM) % PERIOD == 0:
            average = mean(([p.detach() for p in net.parameters()] for net in nets), world)
            for net in nets:
                assign(net, average)
    return losses, nets


@pytest.mark.slow
def test_post_local_sgd(pool: harness.Pool) -> None:
    """Pairs of ranks drift apart and meet again as the definition says."""
    for told in pool.run(post_local):
        told.check(STEPS)


# -- Join: ranks with fewer batches shadow the others ----------------------------------------------


def batches_of(rank: int) -> int:
    return 4 + 3 * rank


def joined(rank: int, world: int) -> Told:
    from torch.distributed.algorithms.join import Join

    before = stack.operations()
    net = DistributedDataParallel(stack.mlp())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses = []
    with Join([net]):
        for step in range(batches_of(rank)):
            optimizer.zero_grad()
            loss = loss_of(net, step, rank, world)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    reference, want = stack.mlp(), list[float]()
    one = torch.optim.Adam(reference.parameters(), lr=0.01)
    for step in range(batches_of(world - 1)):
        active = [r for r in range(world) if step < batches_of(r)]
        each = {r: loss_of(reference, step, r, world) for r in active}
        # The sum is divided by the initial world: a rank that has joined counts as a gradient of 0.
        assign(reference, mean((gradients(reference, each[r]) for r in active), world), grad=True)
        one.step()
        want += [each[rank].item()] if rank in active else []
    gap = stack.distance(net.parameters(), reference.parameters())
    return Told(losses, want, gap, stack.operations() - before)


@pytest.mark.parametrize("world", [2, 4])
def test_join_with_uneven_inputs(pool: harness.Pool, world: int) -> None:
    """Ranks have 4, 7, 10 and 13 batches; afterwards each holds the model of the last one."""
    for rank, told in enumerate(pool.run(joined, world=world)):
        told.check(batches_of(rank))
