"""The parameters of an optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.optim import Optimizer


def params_of(optimizer: Optimizer) -> Iterator[Parameter]:
    """Of all its groups."""
    for group in optimizer.param_groups:
        yield from group["params"]


@contextlib.contextmanager
def only(optimizer: Optimizer, params: Sequence[Parameter]) -> Iterator[None]:
    """It has these alone."""
    chosen = {id(param) for param in params}
    kept = [group["params"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["params"] = [param for param in group["params"] if id(param) in chosen]
    try:
        yield
    finally:
        for group, all_params in zip(optimizer.param_groups, kept, strict=True):
            group["params"] = all_params
