"""This module checks that the arguments of a distributed optimizer go together."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, SGD

from bluefog_pg._core.warning import warn
from bluefog_pg.optim.adapt_with_combine import AdaptWithCombine
from bluefog_pg.optim.algorithm import WINDOWS, AdaptThenCombine, Algorithm
from bluefog_pg.optim.compression import NAMED
from bluefog_pg.optim.gradients import GradientAverage
from bluefog_pg.optim.push_sum import PushSum

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.algorithm import Update
    from bluefog_pg.optim.compression import Compressor
    from bluefog_pg.optim.config import Config

COMMUNICATIONS = (
    "neighbor_allreduce",
    "hierarchical_neighbor_allreduce",
    "allreduce",
    "gradient_allreduce",
    *WINDOWS,
    "push_sum",
    "empty",
)
ALGORITHMS = {"awc": AdaptWithCombine, "atc": AdaptThenCombine}
OWN_ALGORITHMS = {"gradient_allreduce": GradientAverage, "push_sum": PushSum}


class ConfigCheck:
    """A ConfigCheck checks the arguments of one optimizer, and makes the objects that they name."""

    def __init__(self, optimizer: Optimizer, models: Sequence[Module], member: GroupState) -> None:
        self._optimizer, self._models, self._member = optimizer, models, member

    def algorithm_of(self, config: Config, communication: str) -> Algorithm:
        """Return the algorithm for the configuration and this communication.

        Raises:
            ValueError: the configuration does not go with the communication.
        """
        if communication not in COMMUNICATIONS:
            hint = f" (order={communication!r}?)" if communication in list(ALGORITHMS) else ""
            self._fail(
                f"communication must be one of {', '.join(COMMUNICATIONS)}, "
                f"not {communication!r}{hint}"
            )
        algorithm = self._algorithm_of(config, communication)
        self._check_algorithm(config, algorithm, communication)
        if config.compression is not None and communication != "neighbor_allreduce":
            self._fail(f"compression goes with neighbor_allreduce alone, not with {communication}")
        if communication == "hierarchical_neighbor_allreduce" and config.topology is not None:
            self._fail(f"{communication} goes over the machines' topology: set_machine_topology")
        return Algorithm() if communication == "empty" else algorithm

    def compressor_of(self, compression: Any, params: Sequence[Parameter]) -> Compressor | None:
        if compression is not None and any(param.is_complex() for param in params):
            self._fail("compression needs real numbers, and there are complex parameters")
        if isinstance(compression, str):
            if compression not in NAMED:
                self._fail(
                    f"compression must be one of {', '.join(NAMED)}, or a compressor, such as "
                    f"bluefog_pg.optim.TopK(0.01), not {compression!r}"
                )
            return NAMED[compression]()
        is_one = hasattr(compression, "decompress") and not isinstance(compression, type)
        if compression is not None and not is_one:
            self._fail(
                "compression must be a name or a compressor, such as bluefog_pg.optim.TopK(0.01), "
                f"not {compression!r}"
            )
        return cast("Compressor | None", compression)

    def require_parameters(self, mine: Sequence[Parameter]) -> None:
        """Raise unless there are parameters that can be averaged.

        Raises:
            ValueError: no parameter requires a gradient, or some cannot be averaged.
            TypeError: a model is no Module.
        """
        for model in self._models:
            if not isinstance(model, Module):
                raise TypeError(
                    f"{self._member.who} DistributedOptimizer: model must be a torch.nn.Module or "
                    f"a list of them, not {type(model).__name__}"
                )
        if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(self._optimizer).mro()):
            self._fail(
                "ZeroRedundancyOptimizer gives all ranks the update of the one rank that has a "
                "parameter's state, so nothing is left to average: make the optimizer that it "
                "shards distributed instead"
            )
        if not mine:
            self._fail("no parameter of the optimizer requires a gradient")
        if any(hasattr(param, "to_local") for param in mine):
            self._fail(
                "there are DTensors among the parameters, as FSDP2 and tensor parallelism make "
                "them, which it does not average. Average the shards that this rank has after each "
                "step: neighbor_allreduce(param.to_local(), group=...)"
            )
        if any(param.is_meta for param in mine):
            self._fail(
                "there are parameters on device meta, where they have no numbers: "
                'model.to_empty(device="cpu"), and fill them, before the optimizer is made'
            )

    def check_parameters(self, mine: Sequence[Parameter]) -> None:
        """Raise unless these parameters can be the ones that the optimizer trains.

        Raises:
            ValueError: a parameter belongs to none of the models, or two of them overlap in memory.
        """
        known = {id(param) for model in self._models for param in model.parameters()}
        strangers = [list(param.shape) for param in mine if id(param) not in known]
        if self._models and strangers:
            self._fail(
                f"the optimizer has parameters that are none of the model's, of shapes "
                f"{strangers}; give all models that it optimizes"
            )
        self._check_apart(mine)

    def warn_of_averaged_gradients(self, mine: Sequence[Parameter]) -> None:
        """Warn if a DistributedDataParallel in this process averages the parameters' gradients."""
        if self._member.size == 1:
            return
        known = {id(param) for param in mine}
        # Frameworks wrap models on their own, so this looks at all objects of the process, once.
        found = [o for o in gc.get_objects() if issubclass(type(o), DistributedDataParallel)]
        if any(
            not getattr(m, "_comm_hooks", True) and known & {id(p) for p in m.parameters()}
            for m in found
        ):
            warn(
                f"{self._member.who} DistributedOptimizer: the model is a DistributedDataParallel, "
                "or is inside one. That averages all ranks' gradients in each pass, so averages of "
                "parameters change nothing. Leave it out and call the plain model; or "
                "register ddp_hooks.no_average_hook with it. Lightning: use no DDPStrategy. "
                "Accelerate: prepare() no model",
            )

    def watched(self, update: Update, mine: Sequence[Parameter]) -> Update:
        """Return an update that warns if the optimizer keeps copies of the parameters."""

        def watch() -> None:
            update()
            name = None if self.is_of_torch else _copy_in(self._optimizer, mine)
            if name is not None:
                warn(
                    f"{self._member.who} DistributedOptimizer: {type(self._optimizer).__name__} "
                    f"keeps a copy of each parameter in its state, as {name!r}, from which it may "
                    "write the parameters again. Averages do not reach these copies. If you train "
                    "the copies, make them the parameters of a DistributedOptimizer with model=[]",
                )

        return watch

    @property
    def is_of_torch(self) -> bool:
        """Return whether the optimizer is one of torch's own."""
        return type(self._optimizer).__module__.startswith("torch.optim")

    def _algorithm_of(self, config: Config, communication: str) -> Algorithm:
        given = config.order
        if isinstance(given, Algorithm):
            return given
        if given not in ALGORITHMS:
            made = isinstance(given, type) and issubclass(given, Algorithm)
            self._fail(
                f"order must be 'awc', 'atc' or one of bluefog_pg.optim's, such as "
                f"ExactDiffusion(), not {given!r}{'; make one: add ()' if made else ''}"
            )
        kind: type[Algorithm] = OWN_ALGORITHMS.get(communication, ALGORITHMS[given])
        return kind()

    def _check_algorithm(self, config: Config, algorithm: Algorithm, communication: str) -> None:
        kind, every = type(algorithm).__name__, config.every
        if communication not in (*algorithm.communications, "empty"):
            self._fail(
                f"{kind} goes with communication {' or '.join(algorithm.communications)}, "
                f"not with {communication}"
            )
        context = getattr(algorithm, "context", None)
        if context is not None and context.optimizer is not self._optimizer:
            self._fail("the order belongs to another optimizer; make a new one for each")
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            self._fail(f"every must be a positive number of passes, not {every!r}")
        size = config.bucket_bytes
        if not isinstance(size, int | float) or isinstance(size, bool) or not size > 0:
            self._fail(f"bucket_bytes must be a positive number, not {config.bucket_bytes!r}")
        if algorithm.exchanges_at_each_pass and every != 1:
            self._fail(f"{kind} exchanges at each pass; every must be 1, not {every}")
        if config.compression is not None and not algorithm.takes_compression:
            self._fail(f"{kind} takes no compression")
        if algorithm.is_for_sgd and not isinstance(self._optimizer, SGD):
            warn(
                f"{self._member.who} DistributedOptimizer: {kind} is for SGD, whose update is "
                f"linear in the gradient; {type(self._optimizer).__name__}'s is not, and the "
                "algorithm may converge elsewhere",
            )
        is_disturbed = isinstance(algorithm, AdaptWithCombine) or algorithm.reads_gradients
        if isinstance(self._optimizer, LBFGS) and is_disturbed:
            self._fail(
                "LBFGS evaluates its closure several times in one step, at parameters that must "
                'not change meanwhile: use order="atc"'
            )

    def _check_apart(self, params: Sequence[Parameter]) -> None:
        """Raise ValueError if parameters overlap, as buckets would tear them apart."""
        in_order = sorted((p for p in params if p.numel()), key=lambda param: param.data_ptr())
        for one, other in pairwise(in_order):
            if one.data_ptr() + one.nbytes > other.data_ptr():
                self._fail(
                    f"parameters of shapes {list(one.shape)} and {list(other.shape)} overlap in "
                    "memory; tie them by using one Parameter in both places"
                )

    def _fail(self, what: str) -> NoReturn:
        raise ValueError(f"{self._member.who} DistributedOptimizer: {what}")


def _copy_in(optimizer: Optimizer, params: Sequence[Parameter]) -> str | None:
    """Return the name under which the state of most parameters has their own values, if any."""
    names: Counter[str] = Counter()
    some = [param for param in params if param.any()]  # Zeros in a state need not be a copy.
    for param in some:
        for name, value in optimizer.state.get(param, {}).items():
            is_alike = type(value) in (Tensor, Parameter) and value.shape == param.shape
            is_alike = is_alike and value.device == param.device and not value.is_sparse
            names[name] += is_alike and torch.equal(value.to(param.dtype), param)
    return next((name for name, count in names.items() if 2 * count > len(some)), None)
