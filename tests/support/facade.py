"""This module has the inputs that ranks give to the operations of bluefog_pg.torch."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support import oracle

WORLDS = [1, 2, 3, 4]
ROWS = (3, 0, 7, 1)  # the number of rows of each rank, from rank 0 on


def values(rank: int, dtype: torch.dtype, shape: tuple[int, ...], seed: int = 1) -> Tensor:
    flat = oracle.values(dtype, torch.Size(shape).numel(), seed, rank)
    return flat.clone().view(shape)
