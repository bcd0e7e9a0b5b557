"""This module has BlueFog's optimizers; each is a `bluefog_pg.DistributedOptimizer`."""

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

# A Model is a model, several models, or named parameters, as BlueFog's first versions took them.
Model = Module | Sequence[Module] | Iterable[tuple[str, Parameter]] | None
StepFunction = Callable[[Optimizer, Parameter, Tensor, dict[str, Any]], None]

_NAMES = {
    CommunicationType.neighbor_allreduce: "neighbor_allreduce",
    CommunicationType.hierarchical_neighbor_allreduce: "hierarchical_neighbor_allreduce",
    CommunicationType.allreduce: "allreduce",
    CommunicationType.empty: "empty",
}


def _earlier_name_of(name: str) -> property:
    """Return an attribute of an optimizer, by the name that earlier versions of BlueFog gave it."""

    def get(self: BluefogOptimizer) -> Any:
        return getattr(self, name)

    def turn(self: BluefogOptimizer, value: Any) -> None:
        setattr(self, name, value)

    return property(get, turn, doc=f"`{name}`, by its earlier name.")


class BluefogOptimizer(DistributedOptimizer):
    """A BluefogOptimizer is a `DistributedOptimizer` with BlueFog's names for what may be set.

    The functions of this module make it. `force_barrier = True`, on all ranks, puts a barrier
    before each step.

    Thread safety: as `bluefog_pg.DistributedOptimizer`, and it owns the same.

    Args:
        optimizer, model: as in `DistributedAdaptWithCombineOptimizer`.
        args, kwargs: as in `bluefog_pg.DistributedOptimizer`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = bf.DistributedAdaptWithCombineOptimizer(sgd, model)
        >>> isinstance(optimizer, bf.optimizers.BluefogOptimizer), optimizer is sgd
        (True, True)
    """

    force_barrier = False  # whether step() begins with a barrier of all ranks
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
        """Return the communication; all ranks may set another one between two steps.

        Example:
            >>> import bluefog_pg.torch as bf
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> sgd = torch.optim.SGD([w], lr=0.1)
            >>> optimizer = bf.DistributedAdaptWithCombineOptimizer(sgd, [("w", w)])
            >>> optimizer.communication_type
            <CommunicationType.neighbor_allreduce: 'neighbor.allreduce'>
            >>> optimizer.communication_type = bf.CommunicationType.empty
        """
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
        """Make a step, as `DistributedOptimizer.step`; a barrier comes first with `force_barrier`.

        Example:
            >>> import bluefog_pg.torch as bf
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> sgd = torch.optim.SGD([w], lr=0.1)
            >>> optimizer = bf.DistributedAdaptWithCombineOptimizer(sgd, [("w", w)])
            >>> optimizer.force_barrier = True
            >>> w.sum().backward()
            >>> optimizer.step()
            >>> round(w.item(), 3)
            -0.1
        """
        if self.force_barrier:
            barrier()
        return super().step(closure)

    def unregister_window(self) -> None:
        """Free the windows; all ranks do. The optimizer averages no more.

        Example:
            >>> import bluefog_pg.torch as bf
            >>> model = torch.nn.Linear(1, 1)
            >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> optimizer = bf.DistributedWinPutOptimizer(sgd, model)
            >>> optimizer.unregister_window()
            >>> bf.get_current_created_window_names()
            []
        """
        self.close()

    def register_step_function(self, function: StepFunction) -> None:
        """Use `function(optimizer, parameter, gradient, group)` in place of the own update.

        Args:
            function: updates the parameter in place; it gets the optimizer and the group of
                parameters.

        Example:
            >>> import bluefog_pg.torch as bf
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> sgd = torch.optim.SGD([w], lr=0.1)
            >>> optimizer = bf.DistributedAdaptWithCombineOptimizer(sgd, [("w", w)])
            >>> optimizer.register_step_function(lambda _, param, grad, group: param.sub_(5 * grad))
            >>> w.sum().backward()
            >>> optimizer.step()
            >>> w.item()
            -5.0
        """
        self._step_function = function

    def turn_on_timeline(self, model: Module | None = None) -> bool:
        """Draw forward and backward passes, too.

        Args:
            model: the model whose passes are drawn, as BlueFog's first versions asked; None, the
                optimizer's models.

        Returns:
            Whether there is a timeline to draw in.

        Example:
            >>> import bluefog_pg.torch as bf
            >>> model = torch.nn.Linear(1, 1)
            >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> optimizer = bf.DistributedAdaptWithCombineOptimizer(sgd, model)
            >>> optimizer.turn_on_timeline()  # BLUEFOG_TIMELINE is not set.
            False
        """
        if model is not None:
            self.turn_off_timeline()
            self._models = [model]
        self._spans = self._spans or Spans(self, self._models)
        return timeline.current() is not None

    def turn_off_timeline(self, model: Module | None = None) -> bool:
        """Draw passes no more.

        Args:
            model: has no effect; BlueFog's first versions asked for it.

        Returns:
            True.

        Example:
            >>> import bluefog_pg.torch as bf
            >>> model = torch.nn.Linear(1, 1)
            >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> optimizer = bf.DistributedAdaptWithCombineOptimizer(sgd, model)
            >>> optimizer.turn_off_timeline()
            True
        """
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


# torch runs its step hooks around the optimizer's own step, and must not run them around this one.
BluefogOptimizer.step.hooked = True  # type: ignore[attr-defined]


def DistributedAdaptWithCombineOptimizer(
    optimizer: Optimizer,
    model: Model,
    communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
    num_steps_per_communication: int = 1,
    *,
    compression: Compression = None,
) -> BluefogOptimizer:
    """Make an optimizer distributed: w <- average(w) - the update at w.

    The average is formed during forward and backward (D-PSGD: Lian et al., NeurIPS 2017).

    Args:
        optimizer, model: as in `bluefog_pg.DistributedOptimizer`. Named parameters may stand in
            place of the model, as in BlueFog's first versions: then the average begins in step().
        communication_type: what is averaged with.
        num_steps_per_communication: passes for each communication.
        compression: for neighbor_allreduce, as in `bluefog_pg.DistributedOptimizer`.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        AssertionError: `communication_type` is none.
        Others as `bluefog_pg.DistributedOptimizer`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = bf.DistributedAdaptWithCombineOptimizer(
        ...     sgd, model, bf.CommunicationType.allreduce
        ... )
        >>> _ = torch.nn.init.constant_(model.weight, bf.rank())
        >>> model(torch.ones(1, 1)).sum().backward()
        >>> optimizer.step()
        >>> round(model.weight.item(), 3)  # the mean, 1.5, less the update
        1.4
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
    """Make an optimizer distributed: w <- average(w - the update at w).

    The update is made in step(), not in backward(): clipped gradients count, and any optimizer of
    torch's will do.

    Args:
        optimizer, model, communication_type, num_steps_per_communication, compression: as in
            `DistributedAdaptWithCombineOptimizer`.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        The errors of `DistributedAdaptWithCombineOptimizer`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = bf.DistributedAdaptThenCombineOptimizer(
        ...     sgd, model, bf.CommunicationType.allreduce
        ... )
        >>> _ = torch.nn.init.constant_(model.weight, bf.rank())
        >>> model(torch.ones(1, 1)).sum().backward()
        >>> optimizer.step()
        >>> round(model.weight.item(), 3)
        1.4
    """
    name, every = _name_of(communication_type), num_steps_per_communication
    return BluefogOptimizer(
        optimizer, model, name, order="atc", every=every, compression=compression
    )


@renamed(backward_passes_per_step="num_steps_per_communication")
def DistributedGradientAllreduceOptimizer(
    optimizer: Optimizer, model: Model, num_steps_per_communication: int = 1
) -> BluefogOptimizer:
    """Make an optimizer distributed: w <- w - the update by the mean of all ranks' gradients.

    After backward() the gradients are that mean.

    Args:
        optimizer, model, num_steps_per_communication: as in `DistributedAdaptWithCombineOptimizer`.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        The errors of `bluefog_pg.DistributedOptimizer`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.zeros_(model.weight)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=1.0)
        >>> optimizer = bf.DistributedGradientAllreduceOptimizer(sgd, model)
        >>> model(torch.full((1, 1), float(bf.rank()))).sum().backward()
        >>> optimizer.step()
        >>> model.weight.item()
        -1.5
    """
    return BluefogOptimizer(
        optimizer, model, "gradient_allreduce", every=num_steps_per_communication
    )


def DistributedWinPutOptimizer(
    optimizer: Optimizer,
    model: Model,
    num_steps_per_communication: int = 1,
    window_prefix: str | None = None,
) -> BluefogOptimizer:
    """Make an optimizer distributed: put parameters into the neighbors' windows, and average.

    A rank averages what has come: nobody waits. `force_barrier = True`, on all ranks, puts a
    barrier before each step.

    Args:
        optimizer, model, num_steps_per_communication: as in `DistributedAdaptWithCombineOptimizer`.
        window_prefix: the prefix of the windows' names.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        The errors of `bluefog_pg.DistributedOptimizer`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.ones_(model.weight)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = bf.DistributedWinPutOptimizer(sgd, model)
        >>> model(torch.ones(1, 1)).sum().backward()
        >>> optimizer.step()
        >>> 0.7 < model.weight.item() < 1  # Whose steps have come depends on their pace.
        True
        >>> optimizer.close()
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
    """Make an optimizer distributed: fetch the neighbors' parameters as they are, and average.

    Nobody waits. `force_barrier` acts as in `DistributedWinPutOptimizer`.

    Args:
        optimizer, model, num_steps_per_communication, window_prefix: as in
            `DistributedWinPutOptimizer`.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        The errors of `bluefog_pg.DistributedOptimizer`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.ones_(model.weight)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = bf.DistributedPullGetOptimizer(sgd, model)
        >>> model(torch.ones(1, 1)).sum().backward()
        >>> optimizer.step()
        >>> 0.7 < model.weight.item() < 1  # Whose steps it sees depends on their pace.
        True
        >>> optimizer.close()
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
    """Make an optimizer distributed: average by push-sum over a directed graph.

    Each rank needs to know only whom it sends to. `force_barrier` acts as in
    `DistributedWinPutOptimizer`.

    Args:
        optimizer, model, num_steps_per_communication: as in `DistributedAdaptWithCombineOptimizer`.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        The errors of `bluefog_pg.DistributedOptimizer`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.5)
        >>> optimizer = bf.DistributedPushSumOptimizer(sgd, model)
        >>> for _ in range(30):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((model(torch.ones(1, 1)) - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(bf.allreduce(model.weight.detach()).item(), 3)
        1.5
    """
    return BluefogOptimizer(optimizer, model, "push_sum", every=num_steps_per_communication)


def DistributedAllreduceOptimizer(
    optimizer: Optimizer,
    model: Model = None,
    num_steps_per_communication: int = 1,
    named_parameters: Model = None,
) -> BluefogOptimizer:
    """Make an optimizer distributed: average parameters or gradients with all ranks'.

    If you pass a model, its parameters are averaged as `DistributedAdaptWithCombineOptimizer` does:
    ranks differ between steps. If you pass named parameters or nothing, gradients are averaged and
    all ranks stay equal, as in BlueFog's first versions and with
    `DistributedGradientAllreduceOptimizer`.

    Args:
        optimizer, num_steps_per_communication: as in `DistributedAdaptWithCombineOptimizer`.
        model, named_parameters: one of them, or none.

    Returns:
        The optimizer, which is distributed now.

    Raises:
        The errors of `bluefog_pg.DistributedOptimizer`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = bf.DistributedAllreduceOptimizer(torch.optim.SGD([w], lr=1.0))
        >>> (w * bf.rank()).sum().backward()
        >>> optimizer.step()
        >>> w.item()
        -1.5
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
    """Do what `DistributedAdaptWithCombineOptimizer` does with neighbor_allreduce.

    This is its name in earlier versions of BlueFog.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> model = torch.nn.Linear(1, 1)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = bf.DistributedNeighborAllreduceOptimizer(sgd, model)
        >>> optimizer.communication
        'neighbor_allreduce'
    """
    given = model if named_parameters is None else named_parameters
    return _older("neighbor_allreduce", optimizer, given, num_steps_per_communication, compression)


def DistributedConsensusOptimizer(
    optimizer: Optimizer, named_parameters: Model = None
) -> BluefogOptimizer:
    """Do what `DistributedNeighborAllreduceOptimizer` does, by its first name.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> layer = torch.nn.Linear(1, 1)
        >>> sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
        >>> optimizer = bf.DistributedConsensusOptimizer(sgd, layer.named_parameters())
        >>> optimizer.communication
        'neighbor_allreduce'
    """
    return _older("neighbor_allreduce", optimizer, named_parameters, 1)


def DistributedHierarchicalNeighborAllreduceOptimizer(
    optimizer: Optimizer, model: Model, num_steps_per_communication: int = 1
) -> BluefogOptimizer:
    """Do what `DistributedAdaptWithCombineOptimizer` does with hierarchical_neighbor_allreduce.

    This is its name in earlier versions of BlueFog.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.set_machine_topology(bf.RingGraph(bf.machine_size()))
        True
        >>> model = torch.nn.Linear(1, 1)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = bf.DistributedHierarchicalNeighborAllreduceOptimizer(sgd, model)
        >>> optimizer.communication
        'hierarchical_neighbor_allreduce'
    """
    return _older("hierarchical_neighbor_allreduce", optimizer, model, num_steps_per_communication)


@renamed(model="named_parameters")
def DistributedBluefogOptimizer(
    optimizer: Optimizer, named_parameters: Model = None
) -> BluefogOptimizer:
    """Do what `DistributedWinPutOptimizer` does, by its name in BlueFog's first versions.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = bf.DistributedBluefogOptimizer(torch.optim.SGD([w], lr=0.1), [("w", w)])
        >>> optimizer.communication
        'win_put'
        >>> optimizer.close()
    """
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
    """Return the models; an empty list for named parameters, which tell of no passes."""
    if isinstance(model, Module):
        return [model]
    try:
        given: list[Any] = list(model or ())
    except TypeError:
        return [model]  # type: ignore[list-item]  # The optimizer raises that this is no model.
    return [] if all(isinstance(entry, tuple) for entry in given) else given


def _name_of(kind: CommunicationType) -> str:
    assert isinstance(kind, CommunicationType), (  # noqa: S101
        f"communication_type must be a CommunicationType, not {kind!r}"
    )
    return _NAMES[kind]
