"""This module wraps a model, so that it trains in backward() and averages meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn import Module, Parameter
from torch.nn.parallel import DistributedDataParallel

from bluefog_pg import collectives
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.renamed import renamed
from bluefog_pg.optim.adapt_with_combine import AdaptWithCombine
from bluefog_pg.optim.bucket import parted
from bluefog_pg.optim.bucket_readiness import BucketReadiness
from bluefog_pg.optim.distributed_optimizer import DistributedOptimizer
from bluefog_pg.optim.hooks import BackwardHooks, LoadHooks
from bluefog_pg.optim.parameters import params_of
from bluefog_pg.optim.state import allreduce_parameters
from bluefog_pg.optim.windows import free_prefix

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from bluefog_pg.optim.algorithm import Update
    from bluefog_pg.optim.routes import Topology

OptimFn = Callable[[list[tuple[str, Parameter]]], "Optimizer"]
SchedulerFn = Callable[["Optimizer"], "LRScheduler"]


class _CombineAhead(AdaptWithCombine):
    """This algorithm begins the next average when a step ends, and ends it in the next step."""

    def begin(self) -> None:
        """Begin the next average, if it has not begun."""
        if self._exchange is None:
            self._begin()

    def step(self, update: Update) -> None:
        if self._exchange is None:
            if not self._has_averaged:
                self._begin(is_watched=False)
        elif self._is_rewritten:
            self._begin_again()
        self._finish()
        update()
        self._begin()


class DecentralizedDataParallel(Module):
    """Wrap a model, and make its steps bucket by bucket while backward() forms gradients.

    Each bucket does w <- average(w) - update(w), as soon as its gradients are there; nothing is
    left for the loop to do. With sync=True the average of the parameters with the neighbors' is
    formed from one step to the next. With sync=False each rank takes what has come by windows, and
    waits for nobody. Asyncddp has this class.

    Between steps the parameters of other ranks are on their way: change these by `global_avg` or
    `load_state_dict`.

    Thread safety: one thread runs forward and backward passes and calls the methods. Hooks act in
    autograd's threads during backward(). It owns an optimizer for each bucket, the memory that the
    bucket's parameters move into, and with sync=False windows; `close` frees them.

    Args:
        module: the model; `model` is Asyncddp's name for it.
        optim_fn: makes an optimizer of a bucket's [(name, parameter), ...]; each bucket has one.
        lr_scheduler_fn: makes a scheduler of such an optimizer, which steps after it; or None.
        topology: as in `DistributedOptimizer`; or Asyncddp's {"topology": it, "name": any}.
        sync: average by `neighbor_allreduce`; False, by windows.
        scaler: a torch.amp.GradScaler, which the loop uses to scale the loss, and nothing else.
        grad_clip_norm: the largest norm of a bucket's gradients; 0, any.
        sync_buffer_in_global_avg: `global_avg` averages the model's buffers, too.
        bucket_size_in_mb: size of buckets of parameters, in MiB.
        group: the process group; None, the default one.
        param_as_bucket_view, _local_world_size: have no effect; Asyncddp has them.

    Raises:
        The errors of `DistributedOptimizer`.

    Example:
        >>> model = bf.DecentralizedDataParallel(
        ...     torch.nn.Linear(1, 1, bias=False),
        ...     lambda named: torch.optim.SGD([param for _, param in named], lr=0.5),
        ... )
        >>> for _ in range(30):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     ((model(torch.ones(1, 1)) - bf.rank()) ** 2 / 2).sum().backward()
        >>> _ = model.global_avg()
        >>> round(model.module.weight.item(), 3)
        1.5
        >>> model.close()
    """

    @renamed(model="module")
    def __init__(
        self,
        module: Module,
        optim_fn: OptimFn,
        lr_scheduler_fn: SchedulerFn | None = None,
        topology: Topology | Mapping[str, Topology] | None = None,
        sync: bool = True,
        scaler: Any = None,
        grad_clip_norm: float = 0.0,
        param_as_bucket_view: bool = True,  # noqa: ARG002
        sync_buffer_in_global_avg: bool = False,
        bucket_size_in_mb: float = 25,
        _local_world_size: int | None = None,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if isinstance(module, DistributedDataParallel):
            raise TypeError(
                "[bluefog] DecentralizedDataParallel: the module is a DistributedDataParallel, "
                "which would average all ranks' gradients, too; give the one that it wraps"
            )
        self.module = module
        self._member = member_of(group)
        self._scaler, self._clip = scaler, grad_clip_norm
        self._averages_buffers = sync_buffer_in_global_avg
        self._accumulates = False
        names = {param: name for name, param in module.named_parameters()}
        params = [param for param in module.parameters() if param.requires_grad]
        if not params:
            raise ValueError(
                f"{self._member.who} DecentralizedDataParallel: no parameter of the module "
                "requires a gradient"
            )
        parts = parted(params, bucket_size_in_mb * 2**20)
        topologies = _for_each(topology, len(parts))
        prefix = free_prefix([module], self._member)
        self._algorithms = [_CombineAhead() for _ in parts]
        self._optimizers = [
            DistributedOptimizer(
                self._made(optim_fn, [(names[param], param) for param in part]),
                [],
                "neighbor_allreduce" if sync else "win_put",
                order=self._algorithms[number],
                topology=topologies[number],
                window_prefix=f"{prefix}.{number}",
                bucket_bytes=math.inf,
                group=group,
            )
            for number, part in enumerate(parts)
        ]
        self._schedulers = [lr_scheduler_fn(o) for o in self._optimizers] if lr_scheduler_fn else []
        self._readiness = BucketReadiness(parts, self._step)
        self._backwards = BackwardHooks([param for part in parts for param in part], self)
        self._loads = LoadHooks([module], self._leave)
        self._is_closed = False
        self.register_load_state_dict_pre_hook(_take_asyncddp)  # type: ignore[no-untyped-call]

    @property
    def optimizers(self) -> list[DistributedOptimizer]:
        """Return the optimizer of each bucket.

        Example:
            >>> model = bf.DecentralizedDataParallel(
            ...     torch.nn.Linear(2, 1),
            ...     lambda named: torch.optim.SGD([param for _, param in named], lr=0.1),
            ... )
            >>> [optimizer.param_groups[0]["lr"] for optimizer in model.optimizers]
            [0.1]
            >>> model.close()
        """
        return list(self._optimizers)

    @property
    def schedulers(self) -> list[LRScheduler]:
        """Return the scheduler of each bucket's optimizer.

        Example:
            >>> model = bf.DecentralizedDataParallel(
            ...     torch.nn.Linear(2, 1),
            ...     lambda named: torch.optim.SGD([param for _, param in named], lr=0.1),
            ...     lambda sgd: torch.optim.lr_scheduler.StepLR(sgd, step_size=1, gamma=0.5),
            ... )
            >>> model(torch.ones(1, 2)).sum().backward()
            >>> [scheduler.get_last_lr() for scheduler in model.schedulers]
            [[0.05]]
            >>> model.close()
        """
        return list(self._schedulers)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and not self._accumulates:
            if self._scaler is not None and self._readiness.has_acted:
                self._scaler.update()  # The last pass has failed after it stepped some buckets.
            self._readiness.restart()  # The last pass may have failed before its end.
            self._backwards.restart()
        return self.module(*args, **kwargs)

    def set_topology(self, topology: Topology | Mapping[str, Topology] | None) -> None:
        """Average over another topology from now on; all ranks do.

        Args:
            topology: as for the class.

        Example:
            >>> model = bf.DecentralizedDataParallel(
            ...     torch.nn.Linear(1, 1, bias=False),
            ...     lambda named: torch.optim.SGD([param for _, param in named], lr=0.1),
            ... )
            >>> model.set_topology("ring")
            >>> model(torch.ones(1, 1)).sum().backward()
            >>> model.close()
        """
        each = _for_each(topology, len(self._optimizers))
        for optimizer, its_topology in zip(self._optimizers, each, strict=True):
            optimizer.set_topology(its_topology)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward() in the block only add to the gradients, and make no step.

        DistributedDataParallel has this method.

        Example:
            >>> model = bf.DecentralizedDataParallel(
            ...     torch.nn.Linear(1, 1, bias=False),
            ...     lambda named: torch.optim.SGD([param for _, param in named], lr=0.1),
            ... )
            >>> with model.no_sync():
            ...     model(torch.ones(1, 1)).sum().backward()
            >>> model.module.weight.grad.item()
            1.0
            >>> model(torch.ones(1, 1)).sum().backward()  # makes a step by both gradients
            >>> model.close()
        """
        before, self._accumulates = self._accumulates, True
        try:
            yield
        finally:
            self._accumulates = before

    def set_accumulate_grad(self, enable: bool = True) -> None:
        """Choose whether backward() only adds to the gradients; Asyncddp has this method.

        Args:
            enable: True, backward() adds to the gradients, and makes no step.

        Example:
            >>> model = bf.DecentralizedDataParallel(
            ...     torch.nn.Linear(1, 1, bias=False),
            ...     lambda named: torch.optim.SGD([param for _, param in named], lr=0.1),
            ... )
            >>> before = model.module.weight.item()
            >>> model.set_accumulate_grad()
            >>> model(torch.ones(1, 1)).sum().backward()
            >>> model.module.weight.item() == before
            True
            >>> model.close()
        """
        self._accumulates = enable

    @torch.no_grad()
    def global_avg(self) -> float:
        """Give all ranks the mean of their parameters; all ranks call.

        Returns:
            The consensus distance before: the root of the mean over ranks of |w - mean|^2.

        Raises:
            PeerFailed, CollectiveTimeout: a rank died, or did not come.

        Example:
            >>> model = bf.DecentralizedDataParallel(
            ...     torch.nn.Linear(1, 1, bias=False),
            ...     lambda named: torch.optim.SGD([param for _, param in named], lr=0.1),
            ... )
            >>> model(torch.full((1, 1), float(bf.rank()))).sum().backward()
            >>> round(model.global_avg(), 4), model.global_avg()  # One average came before.
            (0.0373, 0.0)
            >>> model.close()
        """
        self._synchronize()
        before = [param.clone() for param in self.module.parameters()]
        allreduce_parameters(self.module.parameters(), self._member.group)
        if self._averages_buffers:
            allreduce_parameters(self.module.buffers(), self._member.group)
        squares = [
            (was - param).abs().square().sum().double()
            for was, param in zip(before, self.module.parameters(), strict=True)
        ]
        if self._member.size > 1 and not self._is_closed and self._is_training():
            self._go_on()
        spread = collectives.allreduce(torch.stack(squares).sum(), group=self._member.group)
        return float(spread.sqrt())

    def close(self) -> None:
        """Finish what is under way, and free windows; backward() makes no steps any more.

        Example:
            >>> model = bf.DecentralizedDataParallel(
            ...     torch.nn.Linear(1, 1, bias=False),
            ...     lambda named: torch.optim.SGD([param for _, param in named], lr=0.1),
            ...     sync=False,
            ... )
            >>> model(torch.ones(1, 1)).sum().backward()
            >>> model.close()
            >>> bf.window_stats()
            {}
        """
        self._is_closed = True
        self._backwards.remove()
        self._loads.remove()
        for optimizer in self._optimizers:
            optimizer.close()

    def gradient(self, param: Parameter) -> None:
        """Note that a backward pass has formed the parameter's gradient."""
        if not self._accumulates and self._is_training():
            self._readiness.gradient(param)

    def backward(self) -> None:
        """Note that a backward pass ends."""
        if self._accumulates or not self._is_training():
            return
        self._readiness.end()
        if self._scaler is not None:
            self._scaler.update()

    def _is_training(self) -> bool:
        """Return False if another object has taken the module over, or the group was destroyed."""
        return not all(o.is_closed or o._coordinator.is_orphan for o in self._optimizers)

    def _made(self, optim_fn: OptimFn, named: list[tuple[str, Parameter]]) -> Optimizer:
        optimizer = optim_fn(named)
        if {id(p) for p in params_of(optimizer)} != {id(param) for _, param in named}:
            raise ValueError(
                f"{self._member.who} DecentralizedDataParallel: optim_fn must make an optimizer of "
                "the parameters that it is given, all of them and no others: it is called once for "
                "each bucket"
            )
        return optimizer

    def _synchronize(self) -> None:
        for optimizer in self._optimizers:
            optimizer.synchronize()

    def _leave(self) -> None:
        for optimizer in self._optimizers:
            optimizer._coordinator.leave()

    def _go_on(self) -> None:
        """Begin averages of what all ranks have now, which windows also hold when this returns."""
        for algorithm in self._algorithms:
            algorithm.begin()
        dist.barrier(group=self._member.group)

    @torch.no_grad()
    def _step(self, number: int) -> None:
        optimizer = self._optimizers[number]
        if optimizer.is_closed:  # Another object trains the module.
            return
        params = list(params_of(optimizer))
        scaler = self._scaler if any(param.grad is not None for param in params) else None
        if scaler is not None:
            scaler.unscale_(optimizer)
        if self._clip > 0:
            torch.nn.utils.clip_grad_norm_(params, self._clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
        optimizer.zero_grad()
        if self._schedulers:
            self._schedulers[number].step()


def _for_each(topology: Any, count: int) -> list[Any]:
    """Return a topology for each bucket's optimizer, with the same steps of a schedule for all."""
    if isinstance(topology, Mapping):
        topology = topology["topology"]
    if isinstance(topology, Iterator):
        return list(itertools.tee(topology, count))
    return [topology] * count


def _take_asyncddp(_: Module, state: dict[str, Any], prefix: str, *_rest: Any) -> None:
    """Rename the entries of a state that Asyncddp has saved, whose wrapper has a `_model`."""
    for key in [key for key in state if key.startswith(f"{prefix}_model.")]:
        state[key.replace(f"{prefix}_model.", f"{prefix}module.", 1)] = state.pop(key)
