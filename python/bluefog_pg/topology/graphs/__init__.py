"""This package has graphs of ranks, which users find in `bluefog_pg.topology_util`."""

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
