"""Training without a centre: optimizers whose ranks average with neighbours."""

from bluefog_pg.optim.distributed_optimizer import DistributedOptimizer
from bluefog_pg.optim.state import (
    allreduce_parameters,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = [
    "DistributedOptimizer",
    "allreduce_parameters",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]
