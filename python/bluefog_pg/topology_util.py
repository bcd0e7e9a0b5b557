"""Build weighted digraphs of ranks and schedules, and say how fast they mix.

The edge i -> j means that i sends to j, with weight A[i, j]; the nodes are the ranks 0 .. n-1. Rank
j averages with column j: x_j <- A[j, j] x_j + sum_i A[i, j] x_i, that is x <- A^T x. Rows and
columns of all graphs built here sum to one, so that averaging keeps the mean of all ranks.

Names in CamelCase are BlueFog's, or follow its style. The functions share no state: any thread may
call them.

Example:
    >>> from bluefog_pg.topology_util import GetRecvWeights, RingGraph
    >>> GetRecvWeights(RingGraph(4, connect_style=2), 0)
    (0.5, {3: 0.5})
"""

from bluefog_pg.topology import graphs
from bluefog_pg.topology.graphs import *  # noqa: F403

__all__ = graphs.__all__
