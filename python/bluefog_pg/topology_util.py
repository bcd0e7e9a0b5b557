"""Weighted digraphs of ranks: builders, schedules, what one rank needs of them, how fast they mix.

The edge i -> j means that i sends to j, with weight A[i, j]; nodes are the ranks 0 .. n-1. Rank j
averages with column j: x_j <- A[j, j] x_j + sum_i A[i, j] x_i, that is x <- A^T x. In all graphs
built here rows and columns sum to one, so that averaging keeps the mean of all ranks.

Names in CamelCase are BlueFog's, or of its kind.
"""

from bluefog_pg.topology import graphs
from bluefog_pg.topology.graphs import *  # noqa: F403

__all__ = graphs.__all__
