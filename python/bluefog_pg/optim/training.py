"""What a distributed optimizer is made of: its buckets, how they are averaged, and when."""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module, Parameter
from torch.optim import LBFGS, Optimizer

from bluefog_pg.optim.alike import require_alike
from bluefog_pg.optim.averages import GlobalAverage, MachineAverage, NeighborAverage
from bluefog_pg.optim.bucket import Bucket, parted
from bluefog_pg.optim.communication import Communication
from bluefog_pg.optim.compressed import CompressedAverage
from bluefog_pg.optim.knobs import Knobs
from bluefog_pg.optim.memory import Memory
from bluefog_pg.optim.order import WINDOWS, Order
from bluefog_pg.optim.parameters import only, params_of
from bluefog_pg.optim.passes import Backwards, Forwards, Loads
from bluefog_pg.optim.plan import Plan, Planning
from bluefog_pg.optim.routes import neighbors_in, routes_of
from bluefog_pg.optim.site import Site, Tally
from bluefog_pg.optim.windows import Send, WindowAverage, free_prefix

if TYPE_CHECKING:
    from bluefog_pg._member import Member
    from bluefog_pg.optim.routes import Route, Topology

_trainings: weakref.WeakSet[Training] = weakref.WeakSet()


class Training:
    """Of one optimizer, which it watches through its models."""

    def __init__(
        self,
        optimizer: Optimizer,
        models: Sequence[Module],
        member: Member,
        plan: Plan,
        update: Callable[[], Any],
    ) -> None:
        """`update`: the optimizer's own step."""
        self._optimizer, self._models, self._member = optimizer, models, member
        self._plan, self._update = plan, update
        self._planning = planning = Planning(optimizer, models, member)
        planning.require_parameters(self._trainable())
        self._compressor = planning.compressor_of(plan.compression, self._trainable())
        self.order = planning.order_of(plan, plan.communication)
        self.knobs = Knobs(self._routes(plan))
        self.tally = Tally()
        self.is_closed, self._has_stepped = False, False
        self._loads = Loads(models, self._leave)
        require_alike(self._trainable(), models, plan, self.order, member)
        self._take_over()
        self._prefix = plan.window_prefix or free_prefix(models, member)
        self._arrange()
        self._memory = Memory(optimizer, lambda: self.order, member)

    @property
    def takes_closure_before(self) -> bool:
        """What a closure does comes before the parameters change."""
        return not isinstance(self._optimizer, LBFGS)

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

    def step(self, update: Callable[[], None]) -> None:
        """Around the optimizer's own update."""
        self._renew()
        self._backwards.restart()
        self._warn_of_no_gradients()
        if not self._has_stepped:  # a hook may be registered until then
            self._planning.warn_of_averaged_gradients()
        self._has_stepped = True
        self.order.step(update)

    def forward(self) -> None:
        """The model begins a forward pass of its training."""
        self._renew()
        self._backwards.restart()
        self.order.forward()

    def close(self) -> None:
        """Average no more. All ranks do."""
        self._end()
        self._retire()

    def _retire(self) -> None:
        """Average no more, but for what is under way; windows stay until `close()`."""
        self.is_closed = True
        self.order.synchronize()
        self._unwatch()
        self._loads.remove()
        self._memory.remove()
        self.order = Order()

    def _take_over(self) -> None:
        """End what averages these parameters already: both would.

        Without other ranks, where it may be gone already: its program has dropped it.
        """
        mine = set(self._trainable())
        in_group = [other for other in _trainings if other._member is self._member]
        for other in in_group:
            if not other.is_closed and not mine.isdisjoint(params_of(other._optimizer)):
                warnings.warn(
                    f"{self._member.who} DistributedOptimizer: another one has averaged these "
                    "parameters until now; it goes on as a plain one",
                    stacklevel=4,
                )
                other._retire()
        _trainings.add(self)

    def _routes(self, plan: Plan) -> Iterator[Route]:
        """Which matter where averages are of neighbours."""
        is_for_them = plan.communication in ("neighbor_allreduce", *WINDOWS, "push_sum")
        return routes_of(plan.topology, self._member, self.order if is_for_them else None)

    def _leave(self) -> None:
        self.order.leave()

    def _renew(self) -> None:
        """Layers were frozen, thawed, added or converted; or a state was loaded."""
        if self.is_closed:
            return
        if self._kinds != _kinds_of(self._trainable()):  # other parameters lie in the buckets
            self._end()
            self._arrange()
        self._memory.recall()

    def _end(self) -> None:
        """Finish what is under way, and give up windows."""
        self.order.close()
        self._unwatch()
        self._communication.close()

    def _arrange(self) -> None:
        params = self._trainable()
        self._planning.check_parameters(params)
        self._kinds = _kinds_of(params)
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
            bool(self._models),
        )
        self._connect()
        self.order.open(self._site)
        self._watch()

    def _connect(self) -> None:
        self._near = neighbors_in(self._plan.topology, self._member)
        self._communication = self._site.communication = self._new_communication()
        self._communication.open(list(self._site.buckets))

    def _disconnect(self) -> None:
        self.order.synchronize()
        self._communication.close()

    def _watch(self) -> None:
        watched = self._site.buckets if self.order.watches_backward else ()
        self._forwards = Forwards(self._models[:1], self.forward)
        self._backwards = Backwards([p for bucket in watched for p in bucket.params], self.order)

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
            return GlobalAverage(group)
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

    def _trainable(self) -> list[Parameter]:
        return [param for param in params_of(self._optimizer) if param.requires_grad]

    def _require_open(self, what: str) -> None:
        if self.is_closed:
            raise ValueError(
                f"{self._member.who} DistributedOptimizer.{what}: the optimizer was closed"
            )

    def _warn_of_no_gradients(self) -> None:
        is_lacking = all(param.grad is None for param in params_of(self._optimizer))
        if not self._models or not is_lacking or not self.takes_closure_before:
            return
        warnings.warn(
            f"{self._member.who} DistributedOptimizer: step() found no gradients: call backward() "
            "before it. Parameters are averaged all the same",
            stacklevel=4,
        )


def _kinds_of(params: Sequence[Parameter]) -> list[tuple[int, torch.dtype, torch.device]]:
    return [(id(param), param.dtype, param.device) for param in params]
