"""What an optimizer may do to parameters."""

from enum import Enum


class CommunicationType(Enum):
    """BlueFog's values."""

    neighbor_allreduce = "neighbor.allreduce"
    hierarchical_neighbor_allreduce = "hierarchical.neighbor.allreduce"
    allreduce = "allreduce"
    empty = "empty"
