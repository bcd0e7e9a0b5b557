"""For those who keep torch's DistributedDataParallel: communication hooks, and an averager.

    model = DistributedDataParallel(net)
    model.register_comm_hook(bluefog_pg.ddp_hooks.NeighborState(), neighbor_average_hook)

DistributedDataParallel begins with alike parameters on all ranks. With gradients averaged among
neighbours alone they drift apart: `NeighborAverager` averages parameters now and then.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.model_averaging.averagers import ModelAverager
from torch.futures import Future
from torch.nn import Parameter

from bluefog_pg._core.group_state import member_of
from bluefog_pg.optim.averages import begin_average
from bluefog_pg.optim.routes import Route, routes_of
from bluefog_pg.optim.step_overrides import StepOverrides

if TYPE_CHECKING:
    from bluefog_pg.optim.routes import Topology

# Of which mypy does not know. DistributedDataParallel looks at the hooks' annotations.
GradBucket: Any = dist.GradBucket  # type: ignore[attr-defined]


class NeighborState:
    """Whom a model's gradients are averaged with.

    Args:
        topology: as of `DistributedOptimizer`; of a schedule, one step for each backward pass.
        group: the process group; None, the default one.
    """

    def __init__(
        self, topology: "Topology | None" = None, group: dist.ProcessGroup | None = None
    ) -> None:
        self.group = group
        self._overrides = StepOverrides(routes_of(topology, member_of(group)))
        self._route = Route()

    def advance(self) -> None:
        """The next pass begins."""
        self._route = self._overrides.route()

    def begin(self, tensors: Tensor | list[Tensor]) -> dist.Work:
        """An average of the pass."""
        return begin_average(tensors, self._route, self.group)


def neighbor_average_hook(state: NeighborState, bucket: GradBucket) -> Future[Tensor]:
    """Average gradients with the neighbours', in place of all ranks'."""
    if bucket.index() == 0:
        state.advance()
    return _averaged(bucket.buffer(), state)


def no_average_hook(_state: object, bucket: GradBucket) -> Future[Tensor]:
    """Leave gradients to their rank: something else averages, such as a `DistributedOptimizer`."""
    future: Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


class NeighborAverager(ModelAverager):
    """Averages parameters with the neighbours' every `period` steps, after `warmup_steps`.

    For torch's PostLocalSGDOptimizer, and as torch's PeriodicModelAverager by hand.

    Args:
        period: steps for each average.
        warmup_steps: steps in which something else keeps the ranks together.
        topology, process_group: as of `NeighborState`.
    """

    def __init__(
        self,
        period: int = 1,
        warmup_steps: int = 0,
        topology: "Topology | None" = None,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(process_group)
        if period < 1 or warmup_steps < 0:
            raise ValueError(
                "[bluefog] NeighborAverager: period must be positive, and warmup_steps not "
                f"negative; got {period} and {warmup_steps}"
            )
        self.period, self.warmup_steps = period, warmup_steps
        self._state = NeighborState(topology, process_group)

    @torch.no_grad()
    def average_parameters(self, params: Iterable[Parameter] | Iterable[Mapping[str, Any]]) -> None:
        """After each step: average if it is time to.

        Args:
            params: parameters, or an optimizer's groups of them.
        """
        step, self.step = self.step, self.step + 1
        if step < self.warmup_steps or (step - self.warmup_steps) % self.period:
            return
        tensors = [tensor for entry in params for tensor in _tensors_of(entry)]
        self._state.advance()
        works = []
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [tensor for tensor in tensors if tensor.dtype == dtype]
            works.append((alike, self._state.begin(alike)))
        for alike, work in works:
            work.wait()
            torch._foreach_copy_(alike, work.result())


def _tensors_of(entry: Parameter | Mapping[str, Any]) -> list[Tensor]:
    given = entry["params"] if isinstance(entry, Mapping) else [entry]
    return [param for param in given if param.requires_grad]


def _averaged(buffer: Tensor, state: NeighborState) -> Future[Tensor]:
    future: Any = state.begin(buffer).get_future()
    averaged: Future[Tensor] = future.then(lambda done: done.value()[0])
    return averaged
