"""This module has the configuration of a distributed optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bluefog_pg.optim.algorithm import Algorithm
    from bluefog_pg.optim.compression import Compressor
    from bluefog_pg.optim.routes import Topology


@dataclass(frozen=True)
class Config:
    """A Config has the arguments of a `DistributedOptimizer`, except for what it optimizes."""

    communication: str
    order: str | Algorithm
    every: int
    compression: str | Compressor | None
    topology: Topology | None
    window_prefix: str | None
    bucket_bytes: float
