"""Weighted digraphs of ranks: builders, schedules, views of one rank, and how fast they mix.

The edge i -> j means that i sends to j, with weight A[i, j]; the nodes are the ranks 0 .. n-1.
Rank j averages with column j: x_j <- A[j, j] x_j + sum_i A[i, j] x_i, that is x <- A^T x. Rows and
columns of all graphs built here sum to one, so that averaging keeps the mean of all ranks.

Names in CamelCase are BlueFog's, or follow its style. The functions share no state: any thread may
call them.

Example:
    >>> from bluefog_pg.topology_util import GetRecvWeights, RingGraph
    >>> GetRecvWeights(RingGraph(4, connect_style=2), 0)
    (0.5, {3: 0.5})
"""

from bluefog_pg.topology.graphs.base_k import BaseKGraphs
from bluefog_pg.topology.graphs.builders import (
    BiRingGraph,
    DeBruijnGraph,
    ErdosRenyiGraph,
    ExponentialGraph,
    ExponentialTwoGraph,
    FullyConnectedGraph,
    HypercubeGraph,
    MeshGrid2DGraph,
    PowerTwoRingGraph,
    RingGraph,
    StarGraph,
    SymmetricExponentialGraph,
    TorusGraph,
)
from bluefog_pg.topology.graphs.infer import (
    InferDestinationFromSourceRanks,
    InferSourceFromDestinationRanks,
)
from bluefog_pg.topology.graphs.metropolis import MetropolisHastingsWeights
from bluefog_pg.topology.graphs.plot import plot
from bluefog_pg.topology.graphs.schedules import (
    GetDynamicOnePeerSendRecvRanks,
    GetDynamicSendRecvRanks,
    GetExp2DynamicSendRecvMachineRanks,
    GetInnerOuterExpo2DynamicSendRecvRanks,
    GetInnerOuterRingDynamicSendRecvRanks,
    OnePeerExponentialTwoGraphs,
)
from bluefog_pg.topology.graphs.spectral import (
    is_doubly_stochastic,
    mixing_time,
    second_singular_value,
    simulate_consensus,
    spectral_gap,
)
from bluefog_pg.topology.graphs.weights import (
    GetRecvWeights,
    GetSendWeights,
    GetWeights,
    IsRegularGraph,
    IsTopologyEquivalent,
    isPowerOf,
)

__all__ = [
    "BaseKGraphs",
    "BiRingGraph",
    "DeBruijnGraph",
    "ErdosRenyiGraph",
    "ExponentialGraph",
    "ExponentialTwoGraph",
    "FullyConnectedGraph",
    "GetDynamicOnePeerSendRecvRanks",
    "GetDynamicSendRecvRanks",
    "GetExp2DynamicSendRecvMachineRanks",
    "GetInnerOuterExpo2DynamicSendRecvRanks",
    "GetInnerOuterRingDynamicSendRecvRanks",
    "GetRecvWeights",
    "GetSendWeights",
    "GetWeights",
    "HypercubeGraph",
    "InferDestinationFromSourceRanks",
    "InferSourceFromDestinationRanks",
    "IsRegularGraph",
    "IsTopologyEquivalent",
    "MeshGrid2DGraph",
    "MetropolisHastingsWeights",
    "OnePeerExponentialTwoGraphs",
    "PowerTwoRingGraph",
    "RingGraph",
    "StarGraph",
    "SymmetricExponentialGraph",
    "TorusGraph",
    "isPowerOf",
    "is_doubly_stochastic",
    "mixing_time",
    "plot",
    "second_singular_value",
    "simulate_consensus",
    "spectral_gap",
]
