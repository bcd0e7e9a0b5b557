"""Training without a centre: optimizers whose ranks average with neighbours."""

from bluefog_pg.optim.distributed_optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
