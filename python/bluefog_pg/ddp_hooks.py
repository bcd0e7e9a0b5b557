"""This module has hooks and an averager for programs that keep DistributedDataParallel.

DistributedDataParallel begins with equal parameters on all ranks. Where gradients are averaged
among neighbors alone, parameters drift apart: `NeighborAverager` averages them now and then.

Example:
    >>> from torch.nn.parallel import DistributedDataParallel
    >>> model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    >>> state = bf.ddp_hooks.NeighborState(topology="full")
    >>> model.register_comm_hook(state, bf.ddp_hooks.neighbor_average_hook)
    >>> model(torch.full((1, 1), float(bf.rank()))).sum().backward()
    >>> model.module.weight.grad.item()
    1.5
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

# mypy does not know this class. DistributedDataParallel looks at the hooks' annotations.
GradBucket: Any = dist.GradBucket  # type: ignore[attr-defined]


class NeighborState:
    """A NeighborState tells `neighbor_average_hook` which ranks average a model's gradients.

    Thread safety: DistributedDataParallel calls it from the thread of the backward pass. No other
    thread may use it at the same time. It owns its place in the schedule; give each model its own.

    Args:
        topology: as in `DistributedOptimizer`; a schedule advances one step for each backward pass.
        group: the process group; None, the default one.

    Raises:
        ValueError, TypeError: as `DistributedOptimizer` for its topology.

    Example:
        >>> state = bf.ddp_hooks.NeighborState(topology="ring")
        >>> state.advance()
        >>> work = state.begin(torch.ones(3))
        >>> _ = work.wait()
        >>> [round(number, 4) for number in work.result()[0].tolist()]
        [1.0, 1.0, 1.0]
    """

    def __init__(
        self, topology: "Topology | None" = None, group: dist.ProcessGroup | None = None
    ) -> None:
        self.group = group
        self._overrides = StepOverrides(routes_of(topology, member_of(group)))
        self._route = Route()

    def advance(self) -> None:
        """Begin the next pass, for which a schedule advances one step.

        Example:
            >>> state = bf.ddp_hooks.NeighborState(topology="one-peer-exp2")
            >>> x = torch.tensor([float(bf.rank())])
            >>> for _ in range(2):  # Two steps of this schedule average four ranks exactly.
            ...     state.advance()
            ...     work = state.begin(x)
            ...     _ = work.wait()
            ...     x = work.result()[0]
            >>> x.tolist()
            [1.5]
        """
        self._route = self._overrides.route()

    def begin(self, tensors: Tensor | list[Tensor]) -> dist.Work:
        """Begin an average of this pass.

        Args:
            tensors: a tensor, or a list of them that travel as one, as in `neighbor_allreduce`.

        Returns:
            The Work; after its wait() the averages are `work.result()`.

        Example:
            >>> state = bf.ddp_hooks.NeighborState(topology="full")
            >>> state.advance()
            >>> work = state.begin([torch.full((2,), float(bf.rank())), torch.ones(1)])
            >>> _ = work.wait()
            >>> [average.tolist() for average in work.result()]
            [[1.5, 1.5], [1.0]]
        """
        return begin_average(tensors, self._route, self.group)


def neighbor_average_hook(state: NeighborState, bucket: GradBucket) -> Future[Tensor]:
    """Average gradients with the neighbors', in place of all ranks'.

    Args:
        state: says which ranks are neighbors.
        bucket: the gradients that DistributedDataParallel hands over.

    Returns:
        A future of the bucket's averaged gradients, which it must not wait for itself.

    Example:
        >>> from torch.nn.parallel import DistributedDataParallel
        >>> model = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
        >>> hook = bf.ddp_hooks.neighbor_average_hook
        >>> model.register_comm_hook(bf.ddp_hooks.NeighborState(topology="full"), hook)
        >>> model(torch.full((1, 2), float(bf.rank()))).sum().backward()
        >>> model.module.weight.grad.tolist()
        [[1.5, 1.5]]
    """
    if bucket.index() == 0:
        state.advance()
    return _averaged(bucket.buffer(), state)


def no_average_hook(_state: object, bucket: GradBucket) -> Future[Tensor]:
    """Leave gradients to their rank: something else averages, such as a `DistributedOptimizer`.

    Args:
        _state: is ignored.
        bucket: the gradients that DistributedDataParallel hands over.

    Returns:
        A future of the bucket's gradients as they are.

    Example:
        >>> from torch.nn.parallel import DistributedDataParallel
        >>> model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        >>> model.register_comm_hook(None, bf.ddp_hooks.no_average_hook)
        >>> model(torch.full((1, 1), float(bf.rank()))).sum().backward()
        >>> model.module.weight.grad.item() == bf.rank()
        True
    """
    future: Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


class NeighborAverager(ModelAverager):
    """Average parameters with the neighbors' every `period` steps, after `warmup_steps`.

    It is for torch's PostLocalSGDOptimizer; or call it by hand, as torch's PeriodicModelAverager.

    Thread safety: one thread at a time may use it. It owns its count of steps and its place in the
    schedule; give each model its own.

    Args:
        period: steps for each average.
        warmup_steps: steps in which something else keeps the ranks together.
        topology, process_group: as `topology` and `group` in `NeighborState`.

    Raises:
        ValueError: `period` is not positive, or `warmup_steps` is negative.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.constant_(model.weight, bf.rank())
        >>> averager = bf.ddp_hooks.NeighborAverager(period=2, topology="full")
        >>> for _ in range(3):  # The first and the third step average.
        ...     averager.average_parameters(model.parameters())
        >>> model.weight.item()
        1.5
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
        """Average parameters in place, if it is time to. Call it after each step.

        Args:
            params: parameters, or an optimizer's groups of them; those without gradients stay.

        Example:
            >>> weight = torch.nn.Parameter(torch.tensor([float(bf.rank())]))
            >>> optimizer = torch.optim.SGD([weight], lr=0.1)
            >>> averager = bf.ddp_hooks.NeighborAverager(topology="full")
            >>> averager.average_parameters(optimizer.param_groups)
            >>> weight.item()
            1.5
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
