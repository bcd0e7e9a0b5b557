"""BlueFog's optimizers: each is a `bluefog_pg.DistributedOptimizer` of some communication."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from bluefog_pg._core import timeline
from bluefog_pg._core.renamed import renamed
from bluefog_pg._core.warning import warn
from bluefog_pg.optim import DistributedOptimizer
from bluefog_pg.torch._collective_ops import barrier
from bluefog_pg.torch._communication import CommunicationType
from bluefog_pg.torch._spans import Spans

if TYPE_CHECKING:
    from typing_extensions import Self

    from bluefog_pg.optim.compression import Compressor

    Compression = str | Compressor | None

__all__ = [
    "CommunicationType",
    "DistributedAdaptThenCombineOptimizer",
    "DistributedAdaptWithCombineOptimizer",
    "DistributedAllreduceOptimizer",
    "DistributedBluefogOptimizer",
    "DistributedConsensusOptimizer",
    "DistributedGradientAllreduceOptimizer",
    "DistributedHierarchicalNeighborAllreduceOptimizer",
    "DistributedNeighborAllreduceOptimizer",
    "DistributedPullGetOptimizer",
    "DistributedPushSumOptimizer",
    "DistributedWinPutOptimizer",
]

# A model, several, or in their place named parameters, as BlueFog's first versions had them.
Model = Module | Sequence[Module] | Iterable[tuple[str, Parameter]] | None
StepFunction = Callable[[Optimizer, Parameter, Tensor, dict[str, Any]], None]

_NAMES = {
    CommunicationType.neighbor_allreduce: "neighbor_allreduce",
    CommunicationType.hierarchical_neighbor_allreduce: "hierarchical_neighbor_allreduce",
    CommunicationType.allreduce: "allreduce",
    CommunicationType.empty: "empty",
}


def _earlier_name_of(name: str) -> property:
    """An attribute of an optimizer, as BlueFog's versions before the last one called it."""

    def get(self: BluefogOptimizer) -> Any:
        return getattr(self, name)

    def turn(self: BluefogOptimizer, value: Any) -> None:
        setattr(self, name, value)

    return property(get, turn, doc=f"`{name}`, by its earlier name.")


class BluefogOptimizer(DistributedOptimizer):
    """With BlueFog's names for what may be turned."""

    force_barrier = False  # set: step() begins with a barrier of all ranks
    _models: list[Module]
    _step_function: StepFunction | None = None
    _spans: Spans | None = None

    def __new__(cls, optimizer: Optimizer, model: Model, *args: Any, **kwargs: Any) -> Self:
        models = _models(model)
        self = super().__new__(cls, optimizer, models, *args, **kwargs)
        self._models = models
        if timeline.current() is not None:
            self.turn_on_timeline()
        return self

    @property
    def communication_type(self) -> CommunicationType:
        """May be set between two steps, by all ranks."""
        for kind, name in _NAMES.items():
            if name == self.communication:
                return kind
        raise AttributeError(f"{self.communication} is no CommunicationType")

    @communication_type.setter
    def communication_type(self, kind: CommunicationType) -> None:
        self.communication = _name_of(kind)

    send_neighbors = _earlier_name_of("dst_weights")
    neighbor_weights = _earlier_name_of("src_weights")
    send_neighbor_machines = _earlier_name_of("dst_machine_weights")
    neighbor_machine_weights = _earlier_name_of("src_machine_weights")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """`DistributedOptimizer.step`, after a barrier where `force_barrier` is set."""
        if self.force_barrier:
            barrier()
        return super().step(closure)

    def unregister_window(self) -> None:
        """Free the windows; all ranks do. The optimizer averages no more."""
        self.close()

    def register_step_function(self, function: StepFunction) -> None:
        """Have `function(optimizer, parameter, gradient, group)` in place of the own update."""
        self._step_function = function

    def turn_on_timeline(self, model: Module | None = None) -> bool:
        """Draw forward and backward passes, too. Whether there is a timeline to draw in.

        Args:
            model: whose passes, as BlueFog's first versions asked; None, the optimizer's models'.
        """
        if model is not None:
            self.turn_off_timeline()
            self._models = [model]
        self._spans = self._spans or Spans(self, self._models)
        return timeline.current() is not None

    def turn_off_timeline(self, model: Module | None = None) -> bool:
        """Draw them no more. `model` is of no effect; BlueFog's first versions asked for it."""
        del model
        if self._spans is not None:
            self._spans.remove()
            self._spans = None
        return True

    def _own_step(self, closure: Callable[[], Any] | None) -> Any:
        if self._step_function is None:
            return super()._own_step(closure)
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._step_function(self, param, param.grad, group)
        return None


BluefogOptimizer.step.hooked = True  # type: ignore[attr-defined]  # by the optimizer's own step


def DistributedAdaptWithCombineOptimizer(
    optimizer: Optimizer,
    model: Model,
    communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
    num_steps_per_communication: int = 1,
    *,
    compression: Compression = None,
) -> BluefogOptimizer:
    """w <- average(w) - the update at w; averaged during forward and backward.

    Args:
        optimizer, model: as of `bluefog_pg.DistributedOptimizer`; named parameters in place of the
            model, as in BlueFog's first versions: then the average begins in step().
        communication_type: what is averaged with.
        num_steps_per_communication: passes for each communication.
        compression: of neighbor_allreduce, as of `bluefog_pg.DistributedOptimizer`.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        AssertionError: `communication_type` is none.
        Others as `bluefog_pg.DistributedOptimizer`.
    """
    name, every = _name_of(communication_type), num_steps_per_communication
    return BluefogOptimizer(optimizer, model, name, every=every, compression=compression)


def DistributedAdaptThenCombineOptimizer(
    optimizer: Optimizer,
    model: Model,
    communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
    num_steps_per_communication: int = 1,
    *,
    compression: Compression = None,
) -> BluefogOptimizer:
    """w <- average(w - the update at w). Else as `DistributedAdaptWithCombineOptimizer`.

    The update is made in step(), not in backward(): clipped gradients count, and any optimizer of
    torch's will do.
    """
    name, every = _name_of(communication_type), num_steps_per_communication
    return BluefogOptimizer(
        optimizer, model, name, order="atc", every=every, compression=compression
    )


@renamed(backward_passes_per_step="num_steps_per_communication")
def DistributedGradientAllreduceOptimizer(
    optimizer: Optimizer, model: Model, num_steps_per_communication: int = 1
) -> BluefogOptimizer:
    """w <- w - the update by the mean of all ranks' gradients, which are it after backward()."""
    return BluefogOptimizer(
        optimizer, model, "gradient_allreduce", every=num_steps_per_communication
    )


def DistributedWinPutOptimizer(
    optimizer: Optimizer,
    model: Model,
    num_steps_per_communication: int = 1,
    window_prefix: str | None = None,
) -> BluefogOptimizer:
    """Puts parameters into the neighbours' windows, and averages what has come: nobody waits.

    `force_barrier = True`, on all ranks, puts a barrier before each step.
    """
    return BluefogOptimizer(
        optimizer,
        model,
        "win_put",
        every=num_steps_per_communication,
        window_prefix=window_prefix,
    )


def DistributedPullGetOptimizer(
    optimizer: Optimizer,
    model: Model,
    num_steps_per_communication: int = 1,
    window_prefix: str | None = None,
) -> BluefogOptimizer:
    """Fetches the neighbours' parameters as they are, and averages: nobody waits.

    `force_barrier` is as of `DistributedWinPutOptimizer`.
    """
    return BluefogOptimizer(
        optimizer,
        model,
        "win_get",
        every=num_steps_per_communication,
        window_prefix=window_prefix,
    )


def DistributedPushSumOptimizer(
    optimizer: Optimizer, model: Model, num_steps_per_communication: int = 1
) -> BluefogOptimizer:
    """Averages by push-sum, over directed graphs in which each rank knows whom it sends to.

    `force_barrier` is as of `DistributedWinPutOptimizer`.
    """
    return BluefogOptimizer(optimizer, model, "push_sum", every=num_steps_per_communication)


def DistributedAllreduceOptimizer(
    optimizer: Optimizer,
    model: Model = None,
    num_steps_per_communication: int = 1,
    named_parameters: Model = None,
) -> BluefogOptimizer:
    """Averages parameters or, as in BlueFog's first versions, gradients: by what it is given.

    A model's parameters are averaged as by `DistributedAdaptWithCombineOptimizer`: ranks differ
    between steps. Named parameters, or nothing, have gradients averaged and all ranks stay equal,
    as with `DistributedGradientAllreduceOptimizer`.
    """
    models = _models(model if named_parameters is None else named_parameters)
    if models:
        return _older("allreduce", optimizer, models, num_steps_per_communication)
    return BluefogOptimizer(optimizer, [], "gradient_allreduce", every=num_steps_per_communication)


def DistributedNeighborAllreduceOptimizer(
    optimizer: Optimizer,
    model: Model = None,
    num_steps_per_communication: int = 1,
    named_parameters: Model = None,
    *,
    compression: Compression = None,
) -> BluefogOptimizer:
    """`DistributedAdaptWithCombineOptimizer` of that communication."""
    given = model if named_parameters is None else named_parameters
    return _older("neighbor_allreduce", optimizer, given, num_steps_per_communication, compression)


def DistributedConsensusOptimizer(
    optimizer: Optimizer, named_parameters: Model = None
) -> BluefogOptimizer:
    """`DistributedNeighborAllreduceOptimizer`, by its name in BlueFog's first versions."""
    return _older("neighbor_allreduce", optimizer, named_parameters, 1)


def DistributedHierarchicalNeighborAllreduceOptimizer(
    optimizer: Optimizer, model: Model, num_steps_per_communication: int = 1
) -> BluefogOptimizer:
    """`DistributedAdaptWithCombineOptimizer` of that communication."""
    return _older("hierarchical_neighbor_allreduce", optimizer, model, num_steps_per_communication)


@renamed(model="named_parameters")
def DistributedBluefogOptimizer(
    optimizer: Optimizer, named_parameters: Model = None
) -> BluefogOptimizer:
    """`DistributedWinPutOptimizer`, by its name in BlueFog's first versions."""
    return BluefogOptimizer(optimizer, named_parameters, "win_put")


def _older(
    name: str, optimizer: Optimizer, model: Model, every: int, compression: Compression = None
) -> BluefogOptimizer:
    warn(
        "BlueFog has DistributedAdaptWithCombineOptimizer in place of this name",
        PendingDeprecationWarning,
    )
    return BluefogOptimizer(optimizer, model, name, every=every, compression=compression)


def _models(model: Model) -> list[Module]:
    """None of named parameters, which tell of no passes."""
    if isinstance(model, Module):
        return [model]
    try:
        given: list[Any] = list(model or ())
    except TypeError:
        return [model]  # type: ignore[list-item]  # which is none, as the optimizer will say
    return [] if all(isinstance(entry, tuple) for entry in given) else given


def _name_of(kind: CommunicationType) -> str:
    assert isinstance(kind, CommunicationType), (  # noqa: S101
        f"communication_type must be a CommunicationType, not {kind!r}"
    )
    return _NAMES[kind]
