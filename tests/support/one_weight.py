"""This module has a model of one weight, on which tests train distributed optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

ONE = torch.ones(1, 1, dtype=torch.float64)


def alike_weights(value: float = 1.0) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, value)
    return model


def sgd(model: nn.Module, lr: float = 0.1, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def warned_by(call: Callable[[], Any], text: str) -> int:
    """Return how often the call warns of `text`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return sum(text in str(warning.message) for warning in caught)
