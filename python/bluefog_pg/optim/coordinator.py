"""This module puts together what a distributed optimizer is made of."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch.nn import Module, Parameter
from torch.optim import LBFGS, Optimizer

from bluefog_pg._core.errors import NotRunning
from bluefog_pg._core.warning import warn
from bluefog_pg.optim.algorithm import AVERAGES, WINDOWS, Algorithm
from bluefog_pg.optim.algorithm_state import AlgorithmState
from bluefog_pg.optim.bucket import Bucket, parted
from bluefog_pg.optim.communication import Communication
from bluefog_pg.optim.communications import new_communication
from bluefog_pg.optim.config import Config
from bluefog_pg.optim.config_check import ConfigCheck
from bluefog_pg.optim.consistency import require_consistent
from bluefog_pg.optim.context import Context
from bluefog_pg.optim.coordinator_state import State
from bluefog_pg.optim.exchange import ExchangeStats
from bluefog_pg.optim.frozen import Frozen
from bluefog_pg.optim.hooks import BackwardHooks, ForwardHooks, LoadHooks
from bluefog_pg.optim.left_out import StepsLeftOut
from bluefog_pg.optim.parameters import described_in, kinds_of, only, params_of
from bluefog_pg.optim.routes import neighbors_in, routes_of
from bluefog_pg.optim.step_overrides import StepOverrides
from bluefog_pg.optim.windows import free_prefix

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.routes import Route, Topology

_coordinators: weakref.WeakSet[Coordinator] = weakref.WeakSet()


class Coordinator:
    """A Coordinator has one optimizer's parameters averaged, and watches it through its models.

    It owns the buckets, the communication, the algorithm, and the hooks. Four methods change the
    state: `_set_up` from APART to ACTIVE, `_reconnect` from ACTIVE by way of PACKED to ACTIVE
    again, `_tear_down` back to APART, and `retire` from any to CLOSED.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        models: Sequence[Module],
        member: GroupState,
        config: Config,
        update: Callable[[], Any],
    ) -> None:
        """Check the arguments and set up, on all ranks; `update` makes the optimizer's own step."""
        self._optimizer, self._models, self._member = optimizer, models, member
        self._config, self._update = config, update
        self._config_check = config_check = ConfigCheck(optimizer, models, member)
        self._params = [param for param in params_of(optimizer) if param.requires_grad]
        config_check.require_parameters(self._params)
        config_check.check_parameters(self._params)
        self._compressor = config_check.compressor_of(config.compression, self._params)
        self.algorithm = config_check.algorithm_of(config, config.communication)
        self.overrides = StepOverrides(self._routes(config))
        self.stats = ExchangeStats()
        self._state, self._has_stepped = State.APART, False
        self._left_out = StepsLeftOut(member.who, self._params)
        self._communication = Communication()
        require_consistent(self._params, models, config, self.algorithm, member)
        with contextlib.ExitStack() as undo:  # If one of these fails, none of them stays.
            self._take_over()
            undo.callback(_coordinators.discard, self)
            self._loads = LoadHooks(models, self.leave)
            undo.callback(self._loads.remove)
            self._algorithm_state = AlgorithmState(optimizer, lambda: self.algorithm, member)
            undo.callback(self._algorithm_state.remove)
            self._prefix = config.window_prefix or free_prefix(models, member)
            self._set_up(self.algorithm.open)
            undo.pop_all()

    def hands_closures_on(self) -> bool:
        """Return whether the optimizer itself calls the program's closure, in its own step.

        Torch's optimizers call it once, as the first thing that they do, so it is called for them
        before the parameters change. LBFGS calls it several times, and so may optimizers of others.
        """
        if isinstance(self._optimizer, LBFGS):
            return True
        return not self._config_check.is_of_torch and self.algorithm.takes_closures

    @property
    def communication(self) -> str:
        return self._config.communication

    @communication.setter
    def communication(self, name: str) -> None:
        """Use another communication from the next exchange on. All ranks make this call."""
        algorithm = self._config_check.algorithm_of(self._config, name)
        self._require_open("communication")
        if name == self._config.communication:
            return
        is_other = type(algorithm) is not type(self.algorithm)
        config = dataclasses.replace(self._config, communication=name)
        self._reconnect(config, algorithm if is_other else None)

    def set_topology(self, topology: Topology | None) -> None:
        """Use another topology from the next exchange on. All ranks make this call."""
        self._require_open("set_topology")
        config = dataclasses.replace(self._config, topology=topology)
        self._config_check.algorithm_of(config, config.communication)
        self._reconnect(config, routes=self._routes(config))

    def step(self, update: Callable[[], None], differentiates: bool) -> None:
        """Make a step of the algorithm around the optimizer's own update.

        Args:
            update: makes the optimizer's own step.
            differentiates: whether the update calls a closure, and so runs backward passes itself.
        """
        if self.is_orphan and not self.is_closed:
            raise NotRunning(
                f"{self._member.who} DistributedOptimizer: its process group has been destroyed. "
                "close() makes the optimizer a plain one; to average in a new group, make a new "
                "DistributedOptimizer of it there"
            )
        self._renew()
        self._backwards.restart()
        if not differentiates:
            self._warn_of_no_gradients()
        is_first, self._has_stepped = not self._has_stepped, True
        if is_first and not self.is_closed:
            self._config_check.warn_of_averaged_gradients(self._params)
            update = self._config_check.watched(update, self._params)
        if self._is_all_frozen():
            self.synchronize()
            update()
            return
        if (
            self._config.communication in AVERAGES
            and self.algorithm.meets
            and self._member.size > 1
        ):
            self._left_out.step()
        self.algorithm.prepare()
        with self._frozen_kept() as frozen:
            frozen.gather()
            self.algorithm.update_differentiates = differentiates
            self.algorithm.step(lambda: frozen.update(update))

    def forward(self) -> None:
        """Note that the model begins a forward pass.

        If all parameters are frozen, the pass belongs to another training, and is ignored.
        """
        if self.is_orphan:
            return
        self._renew()
        if not self._is_all_frozen():
            self._backwards.restart()
            self._left_out.forward()
            self.algorithm.forward()

    def skip(self) -> None:
        """Wait for what is under way, as the next step is the optimizer's own alone."""
        self.synchronize()
        self.algorithm.skip()

    def gradient(self, param: Parameter) -> None:
        """Note that a backward pass has formed the parameter's gradient."""
        if not self.is_orphan:
            self.algorithm.gradient(param)

    def backward(self) -> None:
        """Note that a backward pass ends."""
        if not self.is_orphan:
            self.algorithm.backward()

    def synchronize(self) -> None:
        """Wait for what is under way."""
        self._renew()
        with self._frozen_kept():
            self.algorithm.synchronize()

    def close(self) -> None:
        """Average no more. All ranks make this call, unless the group has been destroyed."""
        if not self.is_orphan:
            self._tear_down()
        self.retire()

    @property
    def is_closed(self) -> bool:
        """Return whether it averages no more, and never will again."""
        return self._state is State.CLOSED

    @property
    def is_orphan(self) -> bool:
        """Return whether its group has been destroyed, so that there is nobody to average with."""
        return self._member.has_ended

    def retire(self) -> None:
        """End what is under way, and average no more; windows stay until `close()`."""
        self.leave()
        self._state = State.CLOSED
        self._unwatch()
        self._loads.remove()
        self._algorithm_state.remove()
        self.algorithm = Algorithm()

    def _take_over(self) -> None:
        """Retire other coordinators of these parameters, as both would average them.

        This happens without other ranks, which may have dropped that coordinator already.
        """
        mine = set(self._params)
        for other in list(_coordinators):
            if other.is_closed or mine.isdisjoint(params_of(other._optimizer)):
                continue
            if not other.is_orphan:
                warn(
                    f"{self._member.who} DistributedOptimizer: another one has averaged these "
                    "parameters until now; that one is a plain optimizer from now on",
                )
            other.retire()
        _coordinators.add(self)

    def _routes(self, config: Config) -> Iterator[Route]:
        """Return the configuration's routes, checked if the averages are with neighbors."""
        is_for_them = config.communication in ("neighbor_allreduce", *WINDOWS, "push_sum")
        return routes_of(config.topology, self._member, self.algorithm if is_for_them else None)

    def leave(self) -> None:
        """End what is under way before the program replaces the parameters, or another trains."""
        if self.is_orphan or self._state is State.APART:
            return
        with self._frozen_kept():
            self.algorithm.leave()

    @contextlib.contextmanager
    def _frozen_kept(self) -> Iterator[Frozen]:
        """Leave frozen parameters as they are during the block, if the algorithm has a memory.

        Its corrections are for steps that a frozen parameter does not make. An algorithm without a
        memory goes on averaging frozen parameters.
        """
        memories = list(self.algorithm.flats().values())
        frozen = Frozen(self._context.buckets if memories else [], memories)
        try:
            yield frozen
        finally:
            frozen.restore()

    def _is_all_frozen(self) -> bool:
        return not any(param.requires_grad for param in self._params)

    def _renew(self) -> None:
        """Adapt to layers that were thawed, added or converted, and to a state that was loaded.

        Parameters that are frozen now keep their places.
        """
        if self.is_closed:
            return
        self._algorithm_state.recall(is_last=False)
        known = set(self._params)
        params = [p for p in params_of(self._optimizer) if p.requires_grad or p in known]
        has_others = self._kinds != kinds_of(params)  # whether the buckets have other parameters
        is_unconnected = self._state in (State.APART, State.PACKED)  # _set_up or _reconnect failed
        if has_others or is_unconnected:
            self._config_check.check_parameters(params)
            self.algorithm.abandon()
            self._tear_down()
            self._params = params
            self._set_up(self.algorithm.reopen)
        self._algorithm_state.recall(is_last=True)

    def _set_up(self, begin: Callable[[Context], None]) -> None:
        """Go from APART to ACTIVE; a failure midway leaves APART.

        Args:
            begin: lets the algorithm begin to work on the buckets, which are connected by then.
        """
        with contextlib.ExitStack() as undo:
            self._pack()
            undo.callback(self._unpack)
            undo.callback(lambda: self._communication.close())
            self._connect()
            begin(self._context)
            self._watch()
            undo.pop_all()
        self._state = State.ACTIVE

    def _reconnect(
        self,
        config: Config,
        algorithm: Algorithm | None = None,
        routes: Iterator[Route] | None = None,
    ) -> None:
        """Go from ACTIVE by way of PACKED to ACTIVE; a failure midway leaves PACKED.

        Args:
            config: the configuration of exchanges from now on.
            algorithm: replaces the present algorithm, unless it is None.
            routes: replace the present routes, unless they are None.
        """
        self.synchronize()
        self.algorithm.abandon()  # An average must not be made again with the ranks from before.
        self._state = State.PACKED
        self._communication.close()
        self._config = config
        if routes is not None:
            self.overrides.routes = routes
        if algorithm is not None:
            self._unwatch()
            self.algorithm.close()
            self.algorithm = algorithm
            algorithm.open(self._context)
            self._watch()
        self._connect()
        self._state = State.ACTIVE

    def _tear_down(self) -> None:
        """Finish what is under way, free windows, and go to APART, unless the state is CLOSED."""
        if self._state is State.APART:
            return
        with self._frozen_kept():
            self.algorithm.close()
        self._unwatch()
        self._communication.close()
        if self._state is not State.CLOSED:
            self._state = State.APART

    def _pack(self) -> None:
        """Move the parameters into buckets."""
        self._context = Context(
            self._optimizer,
            [Bucket(part) for part in parted(self._params, self._config.bucket_bytes)],
            Communication(),
            self._config.every,
            self.overrides,
            self._member,
            self._prefix,
            self.stats,
            self._update_of,
            lambda: self._near,
            self._name_of,
            bool(self._models),
        )
        self._kinds = kinds_of(self._params)
        self._state = State.PACKED

    def _unpack(self) -> None:
        self._state = State.APART
        for bucket in self._context.buckets:
            bucket.scatter()

    def _connect(self) -> None:
        self._near = neighbors_in(self._config.topology, self._member)
        self._communication = self._context.communication = new_communication(
            self._config, self._compressor, self.overrides, self._prefix, self._member
        )
        self._communication.open(list(self._context.buckets))

    def _watch(self) -> None:
        watched = self._context.buckets if self.algorithm.watches_backward else ()
        self._forwards = ForwardHooks(self._models[:1], self.forward)
        self._backwards = BackwardHooks([p for bucket in watched for p in bucket.params], self)

    def _unwatch(self) -> None:
        self._forwards.remove()
        self._backwards.remove()

    def _update_of(self, params: Sequence[Parameter]) -> None:
        with only(self._optimizer, params):
            self._update()

    def _name_of(self, param: Parameter) -> str:
        return described_in(self._models, param)

    def _require_open(self, what: str) -> None:
        if self.is_closed:
            raise ValueError(
                f"{self._member.who} DistributedOptimizer.{what}: the optimizer was closed"
            )

    def _warn_of_no_gradients(self) -> None:
        is_lacking = all(param.grad is None for param in params_of(self._optimizer))
        if not self._models or not is_lacking:
            return
        warn(
            f"{self._member.who} DistributedOptimizer: step() found no gradients: call backward() "
            "before it. Parameters are averaged all the same",
        )
