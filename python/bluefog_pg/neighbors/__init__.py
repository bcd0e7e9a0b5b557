"""This package has the operations between neighbors in a digraph."""

from bluefog_pg.neighbors.align import align as align
from bluefog_pg.neighbors.allgather import neighbor_allgather as neighbor_allgather
from bluefog_pg.neighbors.allreduce import neighbor_allreduce as neighbor_allreduce
from bluefog_pg.neighbors.alltoall import neighbor_alltoall as neighbor_alltoall
from bluefog_pg.neighbors.gossip import pair_gossip as pair_gossip
from bluefog_pg.neighbors.hierarchical import (
    hierarchical_neighbor_allreduce as hierarchical_neighbor_allreduce,
)
