"""This module gives all ranks the same state."""

from bluefog_pg.optim.state import (
    allreduce_parameters,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = ["allreduce_parameters", "broadcast_optimizer_state", "broadcast_parameters"]
