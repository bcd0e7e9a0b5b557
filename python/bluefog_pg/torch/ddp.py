"""Asyncddp's `bluefog.torch.ddp`."""

from __future__ import annotations

from typing import Any

from torch.nn import Module

from bluefog_pg._core.renamed import renamed
from bluefog_pg.optim import decentralized
from bluefog_pg.optim.decentralized import OptimFn as OPTIM_FN_TYPE
from bluefog_pg.optim.decentralized import SchedulerFn as LR_SCHEDULER_FN_TYPE
from bluefog_pg.optim.sampler import LocalStepRandomBatchSampler
from bluefog_pg.optim.state import broadcast_parameters

__all__ = [
    "LR_SCHEDULER_FN_TYPE",
    "OPTIM_FN_TYPE",
    "DecentralizedDataParallel",
    "LocalStepRandomBatchSampler",
]


class DecentralizedDataParallel(decentralized.DecentralizedDataParallel):
    """`bluefog_pg.DecentralizedDataParallel`, but all ranks begin with rank 0's model.

    Its parameters and buffers are broadcast, as Asyncddp does it. Arguments and errors are the
    same.
    """

    @renamed(model="module")
    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        if isinstance(module, Module):  # or else the base class says what is wrong
            tensors = [*module.parameters(), *module.buffers()]
            broadcast_parameters(tensors, 0, kwargs.get("group"))
        super().__init__(module, *args, **kwargs)
