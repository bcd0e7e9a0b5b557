"""This package has graphs of ranks, the topologies of groups, and the edges of calls over them."""

from bluefog_pg.topology.group_topology import (
    in_neighbor_machine_ranks,
    in_neighbor_ranks,
    is_machine_topo_weighted,
    is_topo_weighted,
    load_machine_topology,
    load_topology,
    out_neighbor_machine_ranks,
    out_neighbor_ranks,
    set_machine_topology,
    set_topology,
)

__all__ = [
    "in_neighbor_machine_ranks",
    "in_neighbor_ranks",
    "is_machine_topo_weighted",
    "is_topo_weighted",
    "load_machine_topology",
    "load_topology",
    "out_neighbor_machine_ranks",
    "out_neighbor_ranks",
    "set_machine_topology",
    "set_topology",
]
