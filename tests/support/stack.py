"""The tests of torch's stack share this: a small task, groups of two backends, and distances."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

WIDTH = 8


def batch(step: int, rows: int) -> tuple[Tensor, Tensor]:
    """Return a batch, the same on every rank: inputs, and what a fixed net of `tanh` answers."""
    numbers = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(rows, WIDTH, generator=numbers)
    teacher = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(7))
    return x, torch.tanh(x @ teacher / WIDTH**0.5)


def share(step: int, rank: int, world: int, rows: int = 8) -> tuple[Tensor, Tensor]:
    """Return this rank's `rows` of the step's batch."""
    x, y = batch(step, rows * world)
    return x.chunk(world)[rank], y.chunk(world)[rank]


def mlp(hidden: int = 24) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(WIDTH, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
        nn.Linear(hidden, WIDTH),
    )  # fmt: skip


def momentum(net: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


@contextlib.contextmanager
def group_of(backend: str) -> Iterator[dist.ProcessGroup]:
    """Yield a group of all ranks beside the default one."""
    group = dist.new_group(backend=backend)
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


def operations() -> int:
    """Return how many operations the bluefog groups of this process have carried."""
    import bluefog_pg

    groups = dist.distributed_c10d._world.pg_map.items()
    ours = [group for group, (backend, _) in groups if backend == "bluefog"]
    return sum(bluefog_pg.stats(group)["operations"] for group in ours)


def fully_sharded(net: nn.Sequential, device: str = "cpu") -> nn.Sequential:
    """Shard the net by FSDP2 over all ranks, each of its linear layers by itself, and return it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def full(tensor: Tensor) -> Tensor:
    """Return all of a tensor that may be sharded. This is collective if it is."""
    from torch.distributed.tensor import DTensor

    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


def distance(some: Iterable[Tensor], others: Iterable[Tensor]) -> float:
    """Return the largest difference between two lists of tensors of the same shapes."""
    gaps = [0.0]
    for a, b in zip(some, others, strict=True):
        assert full(a).shape == full(b).shape, (a.shape, b.shape)
        gap = (full(a).double() - full(b).double()).abs().max().item() if a.numel() else 0.0
        gaps.append(float("inf") if gap != gap else gap)
    return max(gaps)
