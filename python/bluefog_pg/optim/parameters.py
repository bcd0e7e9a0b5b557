"""This module looks at an optimizer's parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.nn import Module, Parameter
    from torch.optim import Optimizer


def params_of(optimizer: Optimizer) -> Iterator[Parameter]:
    """Yield the parameters of all groups of an optimizer."""
    for group in optimizer.param_groups:
        yield from group["params"]


@contextlib.contextmanager
def only(optimizer: Optimizer, params: Sequence[Parameter]) -> Iterator[None]:
    """Let the optimizer have these parameters alone during the block."""
    chosen = {id(param) for param in params}
    kept = [group["params"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["params"] = [param for param in group["params"] if id(param) in chosen]
    try:
        yield
    finally:
        for group, all_params in zip(optimizer.param_groups, kept, strict=True):
            group["params"] = all_params


def kinds_of(params: Sequence[Parameter]) -> list[tuple[Any, ...]]:
    """Return what must stay as it is for parameters to stay in their buckets."""
    return [(id(param), param.dtype, param.device, param.stride()) for param in params]


def described_in(models: Iterable[Module], param: Parameter) -> str:
    """Return the parameter's name in the models, and its shape."""
    named = (pair for model in models for pair in model.named_parameters())
    name = next((name for name, other in named if other is param), "")
    return f"{name or 'a parameter'} of shape {list(param.shape)}"
