"""A rank of test_training runs this body: it trains over the backend that its group has."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.support import stack

STEPS = 20


def ddp(net: nn.Sequential, _device: str) -> nn.Module:
    return DistributedDataParallel(net)


WRAPS: dict[str, Callable[[nn.Sequential, str], nn.Module]] = {
    "ddp": ddp,
    "fsdp2": stack.fully_sharded,
}


def trained(rank: int, world: int, name: str, device: str) -> tuple[list[float], list[float]]:
    """Return all parameters in the end, and the losses."""
    torch.backends.cuda.matmul.allow_tf32 = False
    net = WRAPS[name](stack.mlp().to(device), device)
    optimizer, losses = stack.momentum(net), list[float]()
    for step in range(STEPS):
        x, y = stack.share(step, rank, world)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.cat([stack.full(p).flatten() for p in net.parameters()]).tolist(), losses
