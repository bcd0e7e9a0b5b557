"""What a rank of test_training does: the same training over two backends."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import stack

STEPS = 20
Wrap = Callable[[nn.Sequential, dist.ProcessGroup, str], nn.Module]


def ddp(net: nn.Sequential, group: dist.ProcessGroup, _device: str) -> nn.Module:
    return DistributedDataParallel(net, process_group=group)


def fsdp2(net: nn.Sequential, group: dist.ProcessGroup, device: str) -> nn.Module:
    mesh = DeviceMesh.from_group(group, device)
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def trained(wrap: Wrap, backend: str, device: str) -> tuple[list[Tensor], list[float]]:
    with stack.group_of(backend) as group:
        net = wrap(stack.mlp().to(device), group, device)
        optimizer, losses = stack.momentum(net), list[float]()
        for step in range(STEPS):
            x, y = stack.share(step, dist.get_rank(), dist.get_world_size())
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return [stack.full(p).cpu() for p in net.parameters()], losses


def compared(
    _rank: int, _world: int, name: str, device: str, other: str
) -> tuple[float, list[float]]:
    """How far the parameters are apart in the end; the losses over bluefog."""
    wrap: Wrap = {"ddp": ddp, "fsdp2": fsdp2}[name]
    torch.backends.cuda.matmul.allow_tf32 = False
    ours, losses = trained(wrap, "bluefog", device)
    theirs, _ = trained(wrap, other, device)
    return stack.distance(ours, theirs), losses
