"""This module is Asyncddp's of this name: it makes optimizers and schedulers for its wrapper."""

from bluefog_pg.torch import _asyncddp_optimizers
from bluefog_pg.torch._asyncddp_optimizers import *  # noqa: F403

__all__ = _asyncddp_optimizers.__all__
