"""This module is `bluefog_pg.topology_util`, at the place where BlueFog has it."""

from bluefog_pg import topology_util
from bluefog_pg.topology_util import *  # noqa: F403

__all__ = topology_util.__all__
