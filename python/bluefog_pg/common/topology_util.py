"""The place where BlueFog has `bluefog_pg.topology_util`."""

from bluefog_pg import topology_util
from bluefog_pg.topology_util import *  # noqa: F403

__all__ = topology_util.__all__
