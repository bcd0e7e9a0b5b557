"""This module is BlueFog's of this name: it has optimizers that average with other ranks."""

from bluefog_pg.torch import _distributed_optimizers
from bluefog_pg.torch._distributed_optimizers import *  # noqa: F403
from bluefog_pg.torch._distributed_optimizers import BluefogOptimizer as BluefogOptimizer

__all__ = _distributed_optimizers.__all__
