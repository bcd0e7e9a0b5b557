"""This module is Asyncddp's `bluefog.torch.ddp`."""

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
    """Do what `bluefog_pg.DecentralizedDataParallel` does, but begin with rank 0's model.

    The parameters and buffers are broadcast, as Asyncddp does it. Arguments and errors are the
    same.

    Thread safety: as `bluefog_pg.DecentralizedDataParallel`, and it owns the same.

    Example:
        >>> from bluefog_pg.torch.ddp import DecentralizedDataParallel
        >>> layer = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.constant_(layer.weight, bf.rank() + 2)
        >>> model = DecentralizedDataParallel(
        ...     layer, lambda named: torch.optim.SGD([param for _, param in named], lr=0.1)
        ... )
        >>> model.global_avg(), layer.weight.item()
        (0.0, 2.0)
        >>> model.close()
    """

    @renamed(model="module")
    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        if isinstance(module, Module):  # The base class raises if it is not.
            tensors = [*module.parameters(), *module.buffers()]
            broadcast_parameters(tensors, 0, kwargs.get("group"))
        super().__init__(module, *args, **kwargs)
