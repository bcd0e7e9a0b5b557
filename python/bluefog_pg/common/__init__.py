"""This package has the modules of BlueFog's package of this name: `topology_util` and `util`."""

from bluefog_pg.common import topology_util, util

__all__ = ["topology_util", "util"]
