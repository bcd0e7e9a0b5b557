"""BlueFog's optimizers: each is a `bluefog_pg.DistributedOptimizer` of some communication."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from bluefog_pg import timeline
from bluefog_pg.optim import DistributedOptimizer
from bluefog_pg.torch._communication import CommunicationType
from bluefog_pg.torch._spans import Spans

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "CommunicationType",
    "DistributedAdaptThenCombineOptimizer",
    "DistributedAdaptWithCombineOptimizer",
    "DistributedAllreduceOptimizer",
    "DistributedBluefogOptimizer",
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


class BluefogOptimizer(DistributedOptimizer):
    """With BlueFog's names for what may be turned."""

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

    @property
    def send_neighbors(self) -> Any:
        """`dst_weights`, as BlueFog's first versions called them."""
        return self.dst_weights

    @send_neighbors.setter
    def send_neighbors(self, ranks: Any) -> None:
        self.dst_weights = ranks

    @property
    def neighbor_weights(self) -> Any:
        """`src_weights`, as BlueFog's first versions called them."""
        return self.src_weights

    @neighbor_weights.setter
    def neighbor_weights(self, weights: Any) -> None:
        self.src_weights = weights

    def unregister_window(self) -> None:
        """Free the windows; all ranks do. The optimizer averages no more."""
        self.close()

    def register_step_function(self, function: StepFunction) -> None:
        """Have `function(optimizer, parameter, gradient, group)` in place of the own update."""
        self._step_function = function

    def turn_on_timeline(self) -> bool:
        """Draw forward and backward passes, too. Whether there is a timeline to draw in."""
        self._spans = self._spans or Spans(self, self._models)
        return timeline.current() is not None

    def turn_off_timeline(self) -> bool:
        """Draw them no more."""
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


def DistributedAdaptWithCombineOptimizer(
    optimizer: Optimizer,
    model: Model,
    communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
    num_steps_per_communication: int = 1,
) -> BluefogOptimizer:
    """w <- average(w) - the update at w; averaged during forward and backward.

    Args:
        optimizer, model: as of `bluefog_pg.DistributedOptimizer`; named parameters in place of the
            model, as in BlueFog's first versions: then the average begins in step().
        communication_type: what is averaged with.
        num_steps_per_communication: passes for each communication.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        AssertionError: `communication_type` is none.
        Others as `bluefog_pg.DistributedOptimizer`.
    """
    name = _name_of(communication_type)
    return BluefogOptimizer(optimizer, model, name, every=num_steps_per_communication)


def DistributedAdaptThenCombineOptimizer(
    optimizer: Optimizer,
    model: Model,
    communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
    num_steps_per_communication: int = 1,
) -> BluefogOptimizer:
    """w <- average(w - the update at w). Else as `DistributedAdaptWithCombineOptimizer`.

    The update is made in step(), not in backward(): clipped gradients count, and any optimizer of
    torch's will do.
    """
    name = _name_of(communication_type)
    return BluefogOptimizer(optimizer, model, name, order="atc", every=num_steps_per_communication)


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
    """Puts parameters into the neighbours' windows, and averages what has come: nobody waits."""
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
    """Fetches the neighbours' parameters as they are, and averages: nobody waits."""
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
    """Averages by push-sum, over directed graphs in which each rank knows whom it sends to."""
    return BluefogOptimizer(optimizer, model, "push_sum", every=num_steps_per_communication)


def DistributedAllreduceOptimizer(
    optimizer: Optimizer, model: Model = None, num_steps_per_communication: int = 1,
    named_parameters: Model = None,
) -> BluefogOptimizer:  # fmt: skip
    """`DistributedAdaptWithCombineOptimizer` of that communication."""
    return _older("allreduce", optimizer, model or named_parameters, num_steps_per_communication)


def DistributedNeighborAllreduceOptimizer(
    optimizer: Optimizer, model: Model = None, num_steps_per_communication: int = 1,
    named_parameters: Model = None,
) -> BluefogOptimizer:  # fmt: skip
    """`DistributedAdaptWithCombineOptimizer` of that communication."""
    return _older(
        "neighbor_allreduce", optimizer, model or named_parameters, num_steps_per_communication
    )


def DistributedHierarchicalNeighborAllreduceOptimizer(
    optimizer: Optimizer, model: Model, num_steps_per_communication: int = 1
) -> BluefogOptimizer:
    """`DistributedAdaptWithCombineOptimizer` of that communication."""
    return _older("hierarchical_neighbor_allreduce", optimizer, model, num_steps_per_communication)


def DistributedBluefogOptimizer(
    optimizer: Optimizer, named_parameters: Model = None
) -> BluefogOptimizer:
    """`DistributedWinPutOptimizer`, by its name in BlueFog's first versions."""
    return BluefogOptimizer(optimizer, named_parameters, "win_put")


def _older(name: str, optimizer: Optimizer, model: Model, every: int) -> BluefogOptimizer:
    warnings.warn(
        "BlueFog has DistributedAdaptWithCombineOptimizer in place of this name",
        PendingDeprecationWarning,
        stacklevel=3,
    )
    return BluefogOptimizer(optimizer, model, name, every=every)


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
