"""This module names what an optimizer may do to parameters."""

from enum import Enum


class CommunicationType(Enum):
    """A CommunicationType names the communication of an optimizer, with BlueFog's values.

    Thread safety: any thread may use the members, which never change. They own nothing.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> [kind.value for kind in bf.CommunicationType][:2]
        ['neighbor.allreduce', 'hierarchical.neighbor.allreduce']
    """

    neighbor_allreduce = "neighbor.allreduce"
    hierarchical_neighbor_allreduce = "hierarchical.neighbor.allreduce"
    allreduce = "allreduce"
    empty = "empty"
