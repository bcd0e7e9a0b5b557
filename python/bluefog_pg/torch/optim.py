"""Asyncddp's module of this name: optimizers and schedulers that its wrapper of models makes."""

from bluefog_pg.torch import _asyncddp_optimizers
from bluefog_pg.torch._asyncddp_optimizers import *  # noqa: F403

__all__ = _asyncddp_optimizers.__all__
