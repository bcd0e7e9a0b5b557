"""This module makes the tensors of the calls, good and bad."""

from __future__ import annotations

import torch

LARGE = 1 << 19  # A message of so many elements waits for its receiver.


def f(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape).to(dtype)


def fs(count: int, n: int = 2, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [f(n, dtype=dtype) for _ in range(count)]


def sparse(rows: int = 3) -> torch.Tensor:
    return torch.eye(rows).to_sparse()


def meta(n: int = 2) -> torch.Tensor:
    return torch.ones(n, device="meta")


def expanded() -> torch.Tensor:
    return torch.zeros(1).expand(2)
