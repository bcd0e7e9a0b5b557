"""This package has BlueFog's interface: import it as `bf` in place of `bluefog.torch`.

docs/bluefog.md says what differs. The functions that `bluefog_pg` has, too, take a process group as
`group=` in addition. Any thread may call them.

Example:
    >>> import bluefog_pg.torch as bf
    >>> bf.init()
    >>> handle = bf.allreduce_nonblocking(torch.full((2,), float(bf.rank())), name="x")
    >>> bf.synchronize(handle).tolist()
    [1.5, 1.5]
"""

from __future__ import annotations

import torch as torch  # BlueFog's first versions had torch here, too.

from bluefog_pg.topology_util import (
    ExponentialGraph,
    ExponentialTwoGraph,
    FullyConnectedGraph,
    GetDynamicOnePeerSendRecvRanks,
    GetDynamicSendRecvRanks,
    GetExp2DynamicSendRecvMachineRanks,
    GetInnerOuterExpo2DynamicSendRecvRanks,
    GetInnerOuterRingDynamicSendRecvRanks,
    GetRecvWeights,
    GetSendWeights,
    IsRegularGraph,
    IsTopologyEquivalent,
    MeshGrid2DGraph,
    PowerTwoRingGraph,
    RingGraph,
    StarGraph,
    SymmetricExponentialGraph,
)
from bluefog_pg.torch import ddp, mpi_ops, optim, optimizers, topology_util, utility
from bluefog_pg.torch.mpi_ops import *  # noqa: F403
from bluefog_pg.torch.optimizers import *  # noqa: F403
from bluefog_pg.torch.topology_util import (
    InferDestinationFromSourceRanks,
    InferSourceFromDestinationRanks,
)
from bluefog_pg.torch.utility import *  # noqa: F403

__all__ = [
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
    "InferDestinationFromSourceRanks",
    "InferSourceFromDestinationRanks",
    "IsRegularGraph",
    "IsTopologyEquivalent",
    "MeshGrid2DGraph",
    "PowerTwoRingGraph",
    "RingGraph",
    "StarGraph",
    "SymmetricExponentialGraph",
    "ddp",
    "mpi_ops",
    "optim",
    "optimizers",
    "topology_util",
    "utility",
]
__all__ += [*mpi_ops.__all__, *optimizers.__all__, *utility.__all__]
