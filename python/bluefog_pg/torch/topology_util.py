"""The two functions that BlueFog has in this place; graphs are in `bluefog_pg.topology_util`."""

from __future__ import annotations

from bluefog_pg.topology_util import (
    InferDestinationFromSourceRanks,
    InferSourceFromDestinationRanks,
)

__all__ = ["InferDestinationFromSourceRanks", "InferSourceFromDestinationRanks"]
