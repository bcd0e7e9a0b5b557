"""Asyncddp's `bluefog.torch.ddp`."""

from bluefog_pg.optim.decentralized import DecentralizedDataParallel
from bluefog_pg.optim.decentralized import OptimFn as OPTIM_FN_TYPE
from bluefog_pg.optim.decentralized import SchedulerFn as LR_SCHEDULER_FN_TYPE
from bluefog_pg.optim.sampler import LocalStepRandomBatchSampler

__all__ = [
    "LR_SCHEDULER_FN_TYPE",
    "OPTIM_FN_TYPE",
    "DecentralizedDataParallel",
    "LocalStepRandomBatchSampler",
]
