"""Operations of all ranks of a group, as functions of tensors: new results, and gradients."""

from bluefog_pg.collectives.functions import allgather, allreduce, allreduce_, broadcast, broadcast_

__all__ = ["allgather", "allreduce", "allreduce_", "broadcast", "broadcast_"]
