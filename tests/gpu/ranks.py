"""This module starts ranks that share the first GPU, and runs a function on each, in one group."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from tests.support import harness, inrank, on_device

DEVICE = "cuda"


def run(
    body: Callable[..., Any],
    world: int,
    *args: Any,
    backend: str = "bluefog",
    **settings: str,
) -> list[Any]:
    """Run `body(rank, world, *args)` on each rank, with `settings` in its environment."""
    with harness.Ranks(world, env=settings) as ranks:
        ranks.start(within, backend, body.__module__, body.__qualname__, args)
        return [outcome.value for outcome in ranks.join(55)]


def within(
    rank: int, world: int, backend: str, module: str, name: str, args: tuple[Any, ...]
) -> Any:
    on_device.DEVICES[DEVICE]()
    dist.init_process_group(
        backend, init_method=f"file://{inrank.directory() / 'met'}", rank=rank, world_size=world
    )
    try:
        return getattr(importlib.import_module(module), name)(rank, world, *args)
    finally:
        dist.destroy_process_group()
