"""What a distributed optimizer is made of: its buckets, how they are averaged, and when."""

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
from bluefog_pg.optim.alike import require_alike
from bluefog_pg.optim.averages import GlobalAverage, MachineAverage, NeighborAverage
from bluefog_pg.optim.bucket import Bucket, parted
from bluefog_pg.optim.communication import Communication
from bluefog_pg.optim.compressed import CompressedAverage
from bluefog_pg.optim.frozen import Frozen
from bluefog_pg.optim.knobs import Knobs
from bluefog_pg.optim.left_out import StepsLeftOut
from bluefog_pg.optim.memory import Memory
from bluefog_pg.optim.order import AVERAGES, WINDOWS, Order
from bluefog_pg.optim.parameters import only, params_of
from bluefog_pg.optim.passes import Backwards, Forwards, Loads
from bluefog_pg.optim.plan import Plan, Planning
from bluefog_pg.optim.routes import neighbors_in, routes_of
from bluefog_pg.optim.site import Site, Tally
from bluefog_pg.optim.windows import Send, WindowAverage, free_prefix

if TYPE_CHECKING:
    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.routes import Route, Topology

_trainings: weakref.WeakSet[Training] = weakref.WeakSet()


class Training:
    """Of one optimizer, which it watches through its models."""

    def __init__(
        self,
        optimizer: Optimizer,
        models: Sequence[Module],
        member: GroupState,
        plan: Plan,
        update: Callable[[], Any],
    ) -> None:
        """`update`: the optimizer's own step."""
        self._optimizer, self._models, self._member = optimizer, models, member
        self._plan, self._update = plan, update
        self._planning = planning = Planning(optimizer, models, member)
        self._params = self._trainable()
        planning.require_parameters(self._params)
        planning.check_parameters(self._params)
        self._compressor = planning.compressor_of(plan.compression, self._params)
        self.order = planning.order_of(plan, plan.communication)
        self.knobs = Knobs(self._routes(plan))
        self.tally = Tally()
        self.is_closed, self._has_stepped = False, False
        self._left_out = StepsLeftOut(member.who, self._params)
        self._communication = Communication()
        require_alike(self._params, models, plan, self.order, member)
        with contextlib.ExitStack() as undo:  # where one fails, nothing of this stays
            self._take_over()
            undo.callback(_trainings.discard, self)
            self._loads = Loads(models, self.leave)
            undo.callback(self._loads.remove)
            self._memory = Memory(optimizer, lambda: self.order, member)
            undo.callback(self._memory.remove)
            self._prefix = plan.window_prefix or free_prefix(models, member)
            self._arrange(undo)
            self.order.open(self._site)
            self._watch()
            undo.pop_all()

    def hands_closures_on(self) -> bool:
        """Return whether the optimizer itself calls the program's closure, in its own step.

        Those of torch call it once, as the first thing that they do, so it is called for them
        before the parameters change. LBFGS calls it several times, and so may those of others.
        """
        if isinstance(self._optimizer, LBFGS):
            return True
        return not self._planning.is_of_torch and self.order.takes_closures

    @property
    def communication(self) -> str:
        return self._plan.communication

    @communication.setter
    def communication(self, name: str) -> None:
        """From the next exchange on. All ranks do."""
        order = self._planning.order_of(self._plan, name)
        self._require_open("communication")
        if name == self._plan.communication:
            return
        self._disconnect()
        self._plan = dataclasses.replace(self._plan, communication=name)
        if type(order) is not type(self.order):
            self._unwatch()
            self.order.close()
            self.order = order
            order.open(self._site)
            self._watch()
        self._connect()

    def set_topology(self, topology: Topology | None) -> None:
        """From the next exchange on. All ranks do."""
        self._require_open("set_topology")
        plan = dataclasses.replace(self._plan, topology=topology)
        self._planning.order_of(plan, plan.communication)
        routes = self._routes(plan)
        self._disconnect()
        self._plan, self.knobs.routes = plan, routes
        self._connect()

    def step(self, update: Callable[[], None], differentiates: bool) -> None:
        """Run the optimizer's own update, which may call a closure, and the order around it."""
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
            self._planning.warn_of_averaged_gradients(self._params)
            update = self._planning.watched(update, self._params)
        if self._is_all_frozen():
            self.synchronize()
            update()
            return
        if self._plan.communication in AVERAGES and self.order.meets and self._member.size > 1:
            self._left_out.step()
        self.order.prepare()
        with self._frozen_kept() as frozen:
            frozen.gather()
            self.order.update_differentiates = differentiates
            self.order.step(lambda: frozen.update(update))

    def forward(self) -> None:
        """The model begins a forward pass; where all is frozen, it is another training's."""
        if self.is_orphan:
            return
        self._renew()
        if not self._is_all_frozen():
            self._backwards.restart()
            self._left_out.forward()
            self.order.forward()

    def skip(self) -> None:
        """Wait for what is under way: the next step is the optimizer's own alone."""
        self.synchronize()
        self.order.skip()

    def gradient(self, param: Parameter) -> None:
        """A backward pass has formed the parameter's gradient."""
        if not self.is_orphan:
            self.order.gradient(param)

    def backward(self) -> None:
        """A backward pass ends."""
        if not self.is_orphan:
            self.order.backward()

    def synchronize(self) -> None:
        """Wait for what is under way."""
        self._renew()
        with self._frozen_kept():
            self.order.synchronize()

    def close(self) -> None:
        """Average no more. All ranks do, unless the group has been destroyed."""
        if not self.is_orphan:
            self._end()
        self.retire()

    @property
    def is_orphan(self) -> bool:
        """Its group has been destroyed, so that there is nobody to average with."""
        return self._member.has_ended

    def retire(self) -> None:
        """Average no more, but for what is under way; windows stay until `close()`."""
        self.leave()
        self.is_closed = True
        self._unwatch()
        self._loads.remove()
        self._memory.remove()
        self.order = Order()

    def _take_over(self) -> None:
        """End what averages these parameters already: both would.

        That is done without other ranks: they may have dropped it.
        """
        mine = set(self._params)
        for other in list(_trainings):
            if other.is_closed or mine.isdisjoint(params_of(other._optimizer)):
                continue
            if not other.is_orphan:
                warn(
                    f"{self._member.who} DistributedOptimizer: another one has averaged these "
                    "parameters until now; it goes on as a plain one",
                )
            other.retire()
        _trainings.add(self)

    def _routes(self, plan: Plan) -> Iterator[Route]:
        """Which matter where averages are of neighbours."""
        is_for_them = plan.communication in ("neighbor_allreduce", *WINDOWS, "push_sum")
        return routes_of(plan.topology, self._member, self.order if is_for_them else None)

    def leave(self) -> None:
        """End what is under way before the program replaces the parameters, or another trains."""
        if self.is_orphan:
            return
        with self._frozen_kept():
            self.order.leave()

    @contextlib.contextmanager
    def _frozen_kept(self) -> Iterator[Frozen]:
        """Leave the frozen parameters as they are, where an order remembers something of them.

        Its corrections are of steps that a frozen parameter does not make. Plain averages go on.
        """
        memories = list(self.order.flats().values())
        frozen = Frozen(self._site.buckets if memories else [], memories)
        try:
            yield frozen
        finally:
            frozen.restore()

    def _is_all_frozen(self) -> bool:
        return not any(param.requires_grad for param in self._params)

    def _renew(self) -> None:
        """Layers were thawed, added or converted; or a state was loaded.

        Those that are frozen keep their places.
        """
        if self.is_closed:
            return
        self._memory.recall(is_last=False)
        known = set(self._params)
        params = [p for p in params_of(self._optimizer) if p.requires_grad or p in known]
        if self._kinds != _kinds_of(params):  # other parameters lie in the buckets
            self._planning.check_parameters(params)
            self.order.abandon()
            self._end()
            self._params = params
            with contextlib.ExitStack() as undo:
                self._arrange(undo)
                undo.pop_all()
            self.order.reopen(self._site)
            self._watch()
        self._memory.recall(is_last=True)

    def _end(self) -> None:
        """Finish what is under way, and give up windows."""
        with self._frozen_kept():
            self.order.close()
        self._unwatch()
        self._communication.close()

    def _arrange(self, undo: contextlib.ExitStack) -> None:
        """Move the parameters into buckets, and connect these with other ranks'."""
        params = self._params
        self._site = Site(
            self._optimizer,
            [Bucket(part) for part in parted(params, self._plan.bucket_bytes)],
            Communication(),
            self._plan.every,
            self.knobs,
            self._member,
            self._prefix,
            self.tally,
            self._update_of,
            lambda: self._near,
            self._name_of,
            bool(self._models),
        )
        undo.callback(_scatter, self._site.buckets)
        self._kinds = _kinds_of(params)
        undo.callback(lambda: self._communication.close())
        self._connect()

    def _connect(self) -> None:
        self._near = neighbors_in(self._plan.topology, self._member)
        self._communication = self._site.communication = self._new_communication()
        self._communication.open(list(self._site.buckets))

    def _disconnect(self) -> None:
        self.synchronize()
        self.order.abandon()  # what was to be made again with the ranks of before
        self._communication.close()

    def _watch(self) -> None:
        watched = self._site.buckets if self.order.watches_backward else ()
        self._forwards = Forwards(self._models[:1], self.forward)
        self._backwards = Backwards([p for bucket in watched for p in bucket.params], self)

    def _unwatch(self) -> None:
        self._forwards.remove()
        self._backwards.remove()

    def _new_communication(self) -> Communication:
        name, knobs, group = self._plan.communication, self.knobs, self._member.group
        if self._member.size == 1:
            return Communication()
        if name == "neighbor_allreduce" and self._compressor is not None:
            return CompressedAverage(self._compressor, knobs, self._member)
        if name == "neighbor_allreduce":
            return NeighborAverage(knobs, self._member)
        if name == "hierarchical_neighbor_allreduce":
            return MachineAverage(knobs, group)
        if name == "allreduce":
            return GlobalAverage(self._member)
        if name == "win_put":
            return self._windows(
                lambda window, route: window.put(dst_weights=route.dst_weights, async_op=True),
                is_own=False,
            )
        if name == "win_get":
            return self._windows(
                lambda window, route: window.get(src_weights=route.src_weights, async_op=True),
                is_own=True,
            )
        return Communication()

    def _windows(self, send: Send, is_own: bool) -> WindowAverage:
        topology = self._plan.topology
        return WindowAverage(self._prefix, send, is_own, self.knobs, topology, self._member)

    def _update_of(self, params: Sequence[Parameter]) -> None:
        with only(self._optimizer, params):
            self._update()

    def _name_of(self, param: Parameter) -> str:
        named = (pair for model in self._models for pair in model.named_parameters())
        name = next((name for name, other in named if other is param), "")
        return f"{name or 'a parameter'} of shape {list(param.shape)}"

    def _trainable(self) -> list[Parameter]:
        return [param for param in params_of(self._optimizer) if param.requires_grad]

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


def _scatter(buckets: Sequence[Bucket]) -> None:
    for bucket in buckets:
        bucket.scatter()


def _kinds_of(params: Sequence[Parameter]) -> list[tuple[Any, ...]]:
    return [(id(param), param.dtype, param.device, param.stride()) for param in params]
