"""This package has optimizers that train without a center: ranks average with neighbors."""

from bluefog_pg.optim.accum_adam import AccumAdam, AccumAdamW
from bluefog_pg.optim.adapt_with_combine import AdaptWithCombine
from bluefog_pg.optim.algorithm import AdaptThenCombine, Algorithm
from bluefog_pg.optim.compression import Cast, Compressor, Int8, RandomK, TopK
from bluefog_pg.optim.decentralized import DecentralizedDataParallel
from bluefog_pg.optim.distributed_optimizer import DistributedOptimizer
from bluefog_pg.optim.exact import ExactDiffusion, GradientTracking
from bluefog_pg.optim.local import LocalSteps
from bluefog_pg.optim.metrics import Recorder, consensus_distance
from bluefog_pg.optim.momentum import DecentLaM, QuasiGlobalMomentum
from bluefog_pg.optim.pairs import AsynchronousPairs
from bluefog_pg.optim.push_sum import PushDiging, PushSum
from bluefog_pg.optim.sampler import LocalStepRandomBatchSampler
from bluefog_pg.optim.state import (
    allreduce_parameters,
    broadcast_optimizer_state,
    broadcast_parameters,
)

Order = Algorithm  # the earlier name, which programs know

__all__ = [
    "AccumAdam",
    "AccumAdamW",
    "AdaptThenCombine",
    "AdaptWithCombine",
    "Algorithm",
    "AsynchronousPairs",
    "Cast",
    "Compressor",
    "DecentLaM",
    "DecentralizedDataParallel",
    "DistributedOptimizer",
    "ExactDiffusion",
    "GradientTracking",
    "Int8",
    "LocalStepRandomBatchSampler",
    "LocalSteps",
    "Order",
    "PushDiging",
    "PushSum",
    "QuasiGlobalMomentum",
    "RandomK",
    "Recorder",
    "TopK",
    "allreduce_parameters",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "consensus_distance",
]
