"""This module adds averages over other ranks to any of torch's optimizers."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch.nn import Module
from torch.optim import Optimizer

from bluefog_pg._core.group_state import member_of
from bluefog_pg.optim.bucket import LIMIT
from bluefog_pg.optim.config import Config
from bluefog_pg.optim.coordinator import Coordinator
from bluefog_pg.optim.parameters import params_of
from bluefog_pg.optim.step_overrides import StepOverrides

if TYPE_CHECKING:
    import torch.distributed as dist
    from typing_extensions import Self

    from bluefog_pg.optim.algorithm import Algorithm
    from bluefog_pg.optim.compression import Compressor
    from bluefog_pg.optim.exchange import ExchangeStats
    from bluefog_pg.optim.routes import Topology


INSIDE = "Where it wraps another optimizer, make that one distributed first, and then wrap it"


class DistributedOptimizer(Optimizer):
    """Make an optimizer decentralized, in place: its parameters are averaged with other ranks'.

    The optimizer stays the object that it is, with its state, and an instance of its class:
    schedulers, gradient scalers and checkpoints go on with it, and its state_dict is the plain
    optimizer's. All ranks of the group wrap equal models, and make as many steps.

    Before each step a program may set `self_weight`, `src_weights` and `dst_weights` (as in
    `neighbor_allreduce`), `src_machine_weights`, `dst_machine_weights` and `enable_topo_check`.

    Thread safety: one thread runs forward and backward passes and calls the methods. Hooks act in
    autograd's threads during backward(). It owns the buckets: flat memory that the parameters move
    into. With "win_put" and "win_get" it owns windows, too; `close` frees them.

    Args:
        optimizer: any of torch's; with order="awc" one that evaluates its closure once.
        model: the model whose parameters it optimizes, or a list of models, of which the first
            one's passes count. With an empty list steps count, and averages begin in them. The
            parameters move into buckets, which travel as one. Those that are frozen now are
            averaged with nobody until they are thawed.
        communication: "neighbor_allreduce" over `topology`; "hierarchical_neighbor_allreduce" over
            the topology of machines (`set_machine_topology`); "allreduce" of parameters;
            "gradient_allreduce", as DistributedDataParallel; "win_put" and "win_get", in which no
            rank waits for another; "push_sum", over directed graphs without weights; or "empty".
        order: when parameters are averaged. "awc" (adapt with combine) is w <- average(w) -
            update(w), averaged during forward and backward; "atc" (adapt then combine) is w <-
            average(w - update(w)). Or an algorithm of `bluefog_pg.optim`, a new one for each
            optimizer. "gradient_allreduce" and "push_sum" have orders of their own.
        every: communicate at every k-th pass: the passes between are local.
        compression: for "neighbor_allreduce": "fp16", "bf16", "int8", or a `TopK`, `RandomK` or
            other compressor of `bluefog_pg.optim`, a new one for each optimizer. Later messages
            make up for what one leaves out.
        topology: a networkx.DiGraph; a list of them, the steps of a schedule, again and again; an
            iterator of ([ranks to send to], [ranks to receive from]); or one of "exp2",
            "one-peer-exp2", "ring", "full". None: the group's (`set_topology`).
        window_prefix: the prefix of the windows' names; None, the models' class.
        bucket_bytes: the size of buckets, in bytes.
        group: the process group; None, the default one.

    Raises:
        ValueError: arguments that do not go together; a parameter that is none of the model's;
            nothing to optimize.
        TypeError: no optimizer, or a distributed one; no model; a group of another backend.
        NotRunning: there is no default process group.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.5)
        >>> optimizer = bf.DistributedOptimizer(sgd, model, order="atc", topology="full")
        >>> for _ in range(30):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((model(torch.ones(1, 1)) - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(model.weight.item(), 3)
        1.5
    """

    _step_supports_amp_scaling = True  # A rank with infinite gradients must take part in averages.
    self_weight: float | None
    src_weights: Mapping[int, float] | None
    dst_weights: Mapping[int, float] | Sequence[int] | None
    src_machine_weights: Mapping[int, float] | None
    dst_machine_weights: Mapping[int, float] | Sequence[int] | None
    enable_topo_check: bool
    _plain: type[Optimizer]
    _coordinator: Coordinator
    _is_skipping: bool
    _is_in_own_step: bool
    _patched_step: Callable[..., Any] | None = None
    _marked_step: Callable[..., Any] | None = None

    def __new__(
        cls,
        optimizer: Optimizer,
        model: Module | Sequence[Module],
        communication: str = "neighbor_allreduce",
        *,
        order: Literal["awc", "atc"] | Algorithm = "awc",
        every: int = 1,
        compression: str | Compressor | None = None,
        topology: Topology | None = None,
        window_prefix: str | None = None,
        bucket_bytes: float = LIMIT,
        group: dist.ProcessGroup | None = None,
    ) -> Self:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                "[bluefog] DistributedOptimizer: optimizer must be a torch.optim.Optimizer, not "
                f"{type(optimizer).__name__}. {INSIDE}"
            )
        if not hasattr(optimizer, "_optimizer_state_dict_post_hooks"):
            raise TypeError(
                f"[bluefog] DistributedOptimizer: {type(optimizer).__name__} has not called "
                f"torch.optim.Optimizer.__init__. {INSIDE}"
            )
        if isinstance(optimizer, DistributedOptimizer):
            if optimizer._coordinator.is_orphan:
                optimizer._coordinator.retire()
            if not optimizer.is_closed:
                raise TypeError(
                    "[bluefog] DistributedOptimizer: the optimizer is distributed already; "
                    "close() ends that"
                )
            optimizer.__class__ = optimizer._plain  # type: ignore[assignment]
        self = cast("Self", optimizer)
        self._coordinator = Coordinator(
            optimizer,
            [model] if isinstance(model, Module) else list(model),
            member_of(group),
            Config(communication, order, every, compression, topology, window_prefix, bucket_bytes),
            lambda: self._own_step(None),
        )
        self._is_skipping = self._is_in_own_step = False
        _take_patch(self)
        # Nothing that may fail comes after the change of the class.
        optimizer.__class__ = _class_of_both(cls, type(optimizer))
        return self

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing: `__new__` has set all up, and the optimizer keeps its state."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make the optimizer's own step, and around it what the order and the communication say.

        All ranks make as many steps.

        Args:
            closure: evaluates the model again and returns the loss, as in torch's optimizers.

        Returns:
            What the closure or the optimizer's own step returns.

        Raises:
            PeerFailed, CollectiveTimeout, Mismatch: as the communication that it uses.

        Example:
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> sgd = torch.optim.SGD([w], lr=0.1)
            >>> optimizer = bf.DistributedOptimizer(sgd, [], order="atc", topology="full")
            >>> (w * bf.rank()).sum().backward()
            >>> optimizer.step()
            >>> round(w.item(), 3)  # the mean of 0, -0.1, -0.2 and -0.3
            -0.15
        """
        if self._is_in_own_step:  # The program's replacement of step() has called it.
            return self._plainly(closure)
        results = []
        if closure is not None and not self._coordinator.hands_closures_on():
            with torch.enable_grad():
                results.append(closure())
            closure = None
        closure = closure and torch.enable_grad()(closure)
        coordinator, algorithm = self._coordinator, self._coordinator.algorithm

        with _scaler_aside(self, algorithm.has_updated) as is_infinite:

            def update() -> None:
                if not is_infinite or algorithm.reads_gradients:
                    results.append(self._own_step(closure))

            if self._is_skipping:
                is_done = algorithm.has_updated  # whether backward() has made the update
                coordinator.skip()
                if not is_done:
                    update()
            else:
                coordinator.step(update, differentiates=closure is not None)
        return next((result for result in results if result is not None), None)

    def synchronize(self) -> None:
        """Wait for what is under way: with order="awc" the parameters are averages then.

        Raises:
            PeerFailed, CollectiveTimeout, Mismatch: as the communication that it waits for.

        Example:
            >>> model = torch.nn.Linear(1, 1, bias=False)
            >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> optimizer = bf.DistributedOptimizer(sgd, model, topology="full")
            >>> _ = torch.nn.init.constant_(model.weight, bf.rank())
            >>> model(torch.ones(1, 1)).sum().backward()  # The average began with the forward pass.
            >>> optimizer.synchronize()
            >>> model.weight.item()
            1.5
            >>> with optimizer.skip_synchronize():
            ...     optimizer.step()
        """
        self._coordinator.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let step() in the block be the optimizer's own alone. BlueFog has this method.

        Example:
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> optimizer = bf.DistributedOptimizer(torch.optim.SGD([w], lr=0.5), [], order="atc")
            >>> (w * bf.rank()).sum().backward()
            >>> with optimizer.skip_synchronize():
            ...     optimizer.step()
            >>> w.item() == -0.5 * bf.rank()
            True
        """
        before, self._is_skipping = self._is_skipping, True
        try:
            yield
        finally:
            self._is_skipping = before

    def __reduce__(self) -> tuple[Any, ...]:
        """Make copies plain optimizers, as a distributed copy would average a second time."""
        return _new, (self._plain,), Optimizer.__getstate__(self)

    @property
    def tally(self) -> ExchangeStats:
        """Return the number of exchanges so far, and the seconds that this rank has waited in them.

        Example:
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> optimizer = bf.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), [], order="atc")
            >>> w.sum().backward()
            >>> optimizer.step()
            >>> optimizer.tally.exchanges, optimizer.tally.waited >= 0
            (1, True)
        """
        return self._coordinator.stats

    def set_topology(self, topology: Topology | None) -> None:
        """Average over another topology from the next exchange on. All ranks do.

        Args:
            topology: as for the class.

        Raises:
            ValueError, TypeError: as for the class.

        Example:
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> optimizer = bf.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), [], order="atc")
            >>> optimizer.set_topology("full")
            >>> (w * bf.rank()).sum().backward()
            >>> optimizer.step()
            >>> round(w.item(), 3)
            -0.15
        """
        self._coordinator.set_topology(topology)

    @property
    def is_closed(self) -> bool:
        """Return whether it averages no more: after `close()`, or when another has its parameters.

        Example:
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> optimizer = bf.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), [])
            >>> optimizer.is_closed
            False
            >>> optimizer.close()
            >>> optimizer.is_closed
            True
        """
        return self._coordinator.is_closed

    def close(self) -> None:
        """Finish what is under way, free windows, and average no more. All ranks do.

        Example:
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> optimizer = bf.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), [], "win_put")
            >>> w.sum().backward()
            >>> optimizer.step()
            >>> optimizer.close()
            >>> bf.window_stats()
            {}
        """
        self._coordinator.close()

    @property
    def communication(self) -> str:
        """Return the communication's name; all ranks may set another one between two steps.

        Example:
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> optimizer = bf.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), [], order="atc")
            >>> optimizer.communication
            'neighbor_allreduce'
            >>> optimizer.communication = "allreduce"
            >>> (w * bf.rank()).sum().backward()
            >>> optimizer.step()
            >>> round(w.item(), 3)
            -0.15
        """
        return self._coordinator.communication

    @communication.setter
    def communication(self, name: str) -> None:
        self._coordinator.communication = name

    def _own_step(self, closure: Callable[[], Any] | None) -> Any:
        if self._patched_step is None:
            return self._plainly(closure)
        self._is_in_own_step = True
        try:
            return self._patched_step(closure) if closure else self._patched_step()
        finally:
            self._is_in_own_step = False

    def _plainly(self, closure: Callable[[], Any] | None) -> Any:
        step = self._plain.step
        return step(self, closure) if closure else step(self)


# torch runs its step hooks around the optimizer's own step, and must not run them around this one.
DistributedOptimizer.step.hooked = True  # type: ignore[attr-defined]
_classes: dict[tuple[type, type], type] = {}


def _new(plain: type[Optimizer]) -> Optimizer:
    """Return an empty optimizer, which unpickling fills."""
    return plain.__new__(plain)


def _class_of_both(cls: type, plain: type) -> type:
    """Return the class with the plain one's name that derives from both; make it once."""
    if known := _classes.get((cls, plain)):
        return known
    own = {"_plain": plain, "__module__": plain.__module__}
    return _classes.setdefault((cls, plain), type(plain.__name__, (cls, plain), own))


def _take_patch(optimizer: DistributedOptimizer) -> None:
    """Keep what a program or a scheduler has put in place of step(), and run it as the own step.

    A scheduler looks for its mark on the attribute `step`, so an attribute with that mark stays.
    """
    patched = vars(optimizer).pop("step", None)
    if patched is None:
        return
    if patched is not vars(optimizer).get("_marked_step"):
        optimizer._patched_step = patched
    if not hasattr(patched, "_wrapped_by_lr_sched"):
        return
    reference = weakref.ref(optimizer)

    @functools.wraps(patched)
    def step(*args: Any, **kwargs: Any) -> Any:
        watched: Any = reference()
        watched._opt_called = True
        return type(watched).step(watched, *args, **kwargs)

    vars(optimizer)["step"] = optimizer._marked_step = step


@contextlib.contextmanager
def _scaler_aside(optimizer: Optimizer, has_updated: bool) -> Iterator[bool]:
    """Unscale gradients here if a GradScaler has left that to the optimizer's own step.

    Algorithms read gradients before that step. The block gets whether there are infinite gradients,
    which are zeros then.
    """
    own = vars(optimizer)
    hidden: dict[str, Any] = {
        name: own.pop(name) for name in ("grad_scale", "found_inf") if name in own
    }
    scale, found = hidden.get("grad_scale"), hidden.get("found_inf")
    if found is not None and has_updated:
        raise RuntimeError(
            "[bluefog] DistributedOptimizer: AdaptThenCombine(in_backward=True) has made its "
            "update before the GradScaler has unscaled anything; use order='atc'"
        )
    is_infinite = found is not None and bool(found.item())
    gradients = [param.grad for param in params_of(optimizer) if param.grad is not None]
    for gradient in gradients:
        if is_infinite:
            gradient.zero_()
        elif scale is not None:
            gradient.div_(scale)
    try:
        yield is_infinite
    finally:
        own.update(hidden)


def _override(name: str) -> property:
    """Return a property that reads and sets an attribute of the optimizer's overrides."""

    def get(self: DistributedOptimizer) -> Any:
        return getattr(self._coordinator.overrides, name)

    def turn(self: DistributedOptimizer, value: Any) -> None:
        setattr(self._coordinator.overrides, name, value)

    return property(get, turn)


for _name in (override.name for override in fields(StepOverrides) if override.name != "routes"):
    setattr(DistributedOptimizer, _name, _override(_name))
