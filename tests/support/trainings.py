"""This module has a net, and the ways to train it, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# These are set whatever a program has made the default.
PLAIN: dict[str, Any] = {"device": "cpu", "dtype": torch.float32}


def small_net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 5, **PLAIN), torch.nn.Tanh(), torch.nn.Linear(5, 1, **PLAIN)
    )


def fitted(name: str, form: Callable[..., Any], rank: int) -> list[torch.Tensor]:
    """Return the parameters that a rank trained on that device.

    `form(net)` returns how to make a step from inputs, and how to close.
    """
    net = small_net().to(name)
    own = torch.Generator().manual_seed(rank)
    xs = torch.randn(10, 4, 3, generator=own, **PLAIN)
    step, close = form(net)
    for x in xs.to(name):
        step(x)
    close()
    return [param.detach().cpu() for param in net.parameters()]


def loss_of(net: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return (net(x) - x.sum(1, keepdim=True)).pow(2).mean()


def wrapped(options: Callable[[], dict[str, Any]], momentum: float = 0.0) -> Callable[..., Any]:
    """Return a form of a DistributedOptimizer. `options` makes its options anew for each one."""

    def form(net: torch.nn.Module) -> tuple[Callable[[torch.Tensor], None], Callable[[], None]]:
        import bluefog_pg

        plain = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
        optimizer = bluefog_pg.DistributedOptimizer(plain, net, bucket_bytes=64, **options())

        def step(x: torch.Tensor) -> None:
            optimizer.zero_grad()
            loss_of(net, x).backward()
            optimizer.step()

        return step, optimizer.close

    return form


def by_itself(net: torch.nn.Module) -> tuple[Callable[[torch.Tensor], None], Callable[[], None]]:
    """Train by DecentralizedDataParallel."""
    import bluefog_pg

    model = bluefog_pg.DecentralizedDataParallel(
        net,
        lambda named: torch.optim.Adam([p for _, p in named], lr=0.1),
        grad_clip_norm=1.0,
        bucket_size_in_mb=64 / 2**20,
    )

    def close() -> None:
        model.global_avg()
        model.close()

    return lambda x: loss_of(model, x).backward(), close


def hooked(net: torch.nn.Module) -> tuple[Callable[[torch.Tensor], None], Callable[[], None]]:
    """Train by torch's DistributedDataParallel, with a hook and an averager."""
    from bluefog_pg.ddp_hooks import NeighborAverager, NeighborState, neighbor_average_hook

    model = torch.nn.parallel.DistributedDataParallel(net)
    model.register_comm_hook(NeighborState(topology="one-peer-exp2"), neighbor_average_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    averager = NeighborAverager(period=3)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()
        averager.average_parameters(net.parameters())

    return step, lambda: None


def forms(kind: str) -> dict[str, Callable[..., Any]]:
    """Return the ways to train of that kind, by name. None of them uses windows."""
    from bluefog_pg import optim

    def outer(anchors: list[Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(anchors, lr=0.7, momentum=0.5, nesterov=True)

    of: dict[str, dict[str, Any]] = {
        "orders": {
            "awc": wrapped(lambda: {"order": "awc"}, momentum=0.9),
            "atc": wrapped(lambda: {"order": "atc"}, momentum=0.9),
            "in backward": wrapped(lambda: {"order": optim.AdaptThenCombine(in_backward=True)}),
            "exact": wrapped(lambda: {"order": optim.ExactDiffusion(), "topology": "ring"}),
            "tracking": wrapped(lambda: {"order": optim.GradientTracking(), "topology": "ring"}),
            "PushDiging": wrapped(lambda: {"order": optim.PushDiging()}),
            "quasi-global": wrapped(lambda: {"order": optim.QuasiGlobalMomentum(), "every": 2}),
            "DecentLaM": wrapped(lambda: {"order": optim.DecentLaM(), "topology": "ring"}, 0.9),
            "local": wrapped(lambda: {"order": optim.LocalSteps(outer), "every": 3}),
        },
        "communications": {
            name: wrapped(lambda name=name: {"communication": name})
            for name in (
                "hierarchical_neighbor_allreduce", "allreduce", "gradient_allreduce", "push_sum",
                "empty",
            )
        },
        "compressions": {
            name: wrapped(lambda make=make: {"compression": make(), "topology": "one-peer-exp2"})
            for name, make in {
                "fp16": lambda: "fp16", "bf16": lambda: "bf16", "int8": lambda: optim.Int8(4),
                "top-k": lambda: optim.TopK(0.3), "random-k": lambda: optim.RandomK(0.3),
            }.items()
        },
        "models": {"DecentralizedDataParallel": by_itself, "DistributedDataParallel": hooked},
    }  # fmt: skip
    return of[kind]
