"""Inputs that ranks give to bluefog_pg.torch's operations."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support import oracle

WORLDS = [1, 2, 3, 4]
ROWS = (3, 0, 7, 1)  # of ranks 0, 1, ...


def values(rank: int, dtype: torch.dtype, shape: tuple[int, ...], seed: int = 1) -> Tensor:
    flat = oracle.values(dtype, torch.Size(shape).numel(), seed, rank)
    return flat.clone().view(shape)
