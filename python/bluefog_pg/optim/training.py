"""What a distributed optimizer is made of: its buckets, how they are averaged, and when."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from torch.nn import Module, Parameter
from torch.optim import LBFGS, Optimizer

from bluefog_pg.optim.averages import GlobalAverage, MachineAverage, NeighborAverage
from bluefog_pg.optim.bucket import Bucket, parted
from bluefog_pg.optim.communication import Communication
from bluefog_pg.optim.compressed import CompressedAverage
from bluefog_pg.optim.compression import NAMED, Compressor
from bluefog_pg.optim.gradients import GradientAverage
from bluefog_pg.optim.knobs import Knobs
from bluefog_pg.optim.memory import Memory
from bluefog_pg.optim.order import AdaptThenCombine, AdaptWithCombine, Order
from bluefog_pg.optim.passes import Backwards, Forwards
from bluefog_pg.optim.push_sum import PushSum
from bluefog_pg.optim.routes import is_schedule, routes_of
from bluefog_pg.optim.site import Site, Tally
from bluefog_pg.optim.windows import Send, WindowAverage

if TYPE_CHECKING:
    from bluefog_pg._member import Member

WINDOWS = ("win_put", "win_get")
COMMUNICATIONS = (
    "neighbor_allreduce",
    "hierarchical_neighbor_allreduce",
    "allreduce",
    "gradient_allreduce",
    *WINDOWS,
    "push_sum",
    "empty",
)
ORDERS = {"awc": AdaptWithCombine, "atc": AdaptThenCombine}


class Training:
    """Of one optimizer, which it watches through its models."""

    def __init__(
        self,
        optimizer: Optimizer,
        models: Sequence[Module],
        member: Member,
        *,
        communication: str,
        order: str | Order,
        every: int,
        compression: str | Compressor | None,
        topology: Any,
        window_prefix: str | None,
        bucket_bytes: float,
    ) -> None:
        self._optimizer, self._models, self._member = optimizer, models, member
        self.order: Order
        self._order, self._every, self._bucket_bytes = order, every, bucket_bytes
        self._prefix = window_prefix or "+".join(type(model).__name__ for model in models)
        self._check()
        self._compressor = self._compressor_of(compression)
        self._check_communication(communication)
        self._communication_name = communication
        self._topology = topology
        self.tally = Tally()
        self._is_closed = False
        self.knobs = Knobs(routes_of(topology, member))
        self._arrange()
        Memory(optimizer, lambda: self.order)

    @property
    def takes_closure_before(self) -> bool:
        """What a closure does comes before the parameters change."""
        return not isinstance(self._optimizer, LBFGS)

    @property
    def communication(self) -> str:
        return self._communication_name

    @communication.setter
    def communication(self, name: str) -> None:
        """From the next exchange on. All ranks do."""
        self._check_communication(name)
        if name != self._communication_name:
            self._part()
            self._communication_name = name
            self._arrange()

    def set_topology(self, topology: Any) -> None:
        """From the next exchange on. All ranks do."""
        routes = routes_of(topology, self._member)
        self._part()
        self._topology, self.knobs.routes = topology, routes
        self._arrange()

    def step(self, update: Callable[[], None]) -> None:
        """Around the optimizer's own update."""
        self._renew()
        self._warn_of_no_gradients()
        self.order.step(update)

    def forward(self) -> None:
        """The model begins a forward pass of its training."""
        self._renew()
        self.order.forward()

    def _renew(self) -> None:
        """Layers were frozen, thawed, added or converted: other parameters lie in the buckets."""
        if not self._is_closed and self._kinds != _kinds_of(self._trainable()):
            self._part()
            self._arrange()

    def close(self) -> None:
        """Average no more. All ranks do."""
        self._is_closed = True
        self._part()
        self.order = Order()

    def _part(self) -> None:
        """Finish what is under way, and give up windows."""
        self.order.close()
        self._forwards.remove()
        self._backwards.remove()
        self._communication.close()

    def fail(self, what: str) -> NoReturn:
        raise ValueError(f"{self._member.who} DistributedOptimizer: {what}")

    def _arrange(self) -> None:
        params = self._trainable()
        self._kinds = _kinds_of(params)
        buckets = [Bucket(part) for part in parted(params, self._bucket_bytes)]
        self._communication = self._new_communication()
        self._communication.open(buckets)
        self.order = self._new_order()
        self.order.open(
            Site(
                self._optimizer,
                buckets,
                self._communication,
                self._every,
                self.knobs,
                self._member,
                prefix=self._prefix,
                tells_of_forwards=bool(self._models),
                tally=self.tally,
            )
        )
        watched = params if self.order.watches_backward else []
        self._forwards = Forwards(self._models[:1], self.forward)
        self._backwards = Backwards(watched, self.order)

    def _new_order(self) -> Order:
        if self._member.size == 1 or self._communication_name == "empty":
            return Order()
        if self._communication_name == "gradient_allreduce":
            return GradientAverage()
        if isinstance(self._order, Order):
            return self._order
        return PushSum() if self._communication_name == "push_sum" else ORDERS[self._order]()

    def _new_communication(self) -> Communication:
        name, knobs, group = self._communication_name, self.knobs, self._member.group
        if self._member.size == 1:
            return Communication()
        if name == "neighbor_allreduce" and self._compressor is not None:
            return CompressedAverage(self._compressor, knobs, self._member)
        if name == "neighbor_allreduce":
            return NeighborAverage(knobs, group)
        if name == "hierarchical_neighbor_allreduce":
            return MachineAverage(knobs, group)
        if name == "allreduce":
            return GlobalAverage(group)
        if name == "win_put":
            return self._windows(
                lambda window: window.put(dst_weights=knobs.dst_weights, async_op=True)
            )
        if name == "win_get":
            return self._windows(
                lambda window: window.get(src_weights=knobs.src_weights, async_op=True)
            )
        return Communication()

    def _windows(self, send: Send) -> WindowAverage:
        if is_schedule(self._topology):
            self.fail(
                f"{self._communication_name} takes one digraph, no schedule: set dst_weights (or "
                "src_weights) before each step"
            )
        return WindowAverage(self._prefix, send, self.knobs.route(), self._member)

    def _trainable(self) -> list[Parameter]:
        groups = self._optimizer.param_groups
        return [param for group in groups for param in group["params"] if param.requires_grad]

    def _warn_of_no_gradients(self) -> None:
        groups = self._optimizer.param_groups
        if not self._models or any(
            param.grad is not None for group in groups for param in group["params"]
        ):
            return
        warnings.warn(
            f"{self._member.who} DistributedOptimizer: step() found no gradients: call backward() "
            "before it. Parameters are averaged all the same",
            stacklevel=4,
        )

    def _check(self) -> None:
        if not isinstance(self._order, Order) and self._order not in ORDERS:
            self.fail(f"order must be 'awc', 'atc' or an Order, not {self._order!r}")
        site = getattr(self._order, "site", None)
        if site is not None and site.optimizer is not self._optimizer:
            self.fail("the order is another optimizer's; make a new one for each")
        if not isinstance(self._every, int) or self._every < 1:
            self.fail(f"every must be a positive number of passes, not {self._every!r}")
        if self._order == "awc" and isinstance(self._optimizer, LBFGS):
            self.fail(
                "LBFGS evaluates its closure several times in one step, at parameters that must "
                'not change meanwhile: use order="atc"'
            )
        for model in self._models:
            if not isinstance(model, Module):
                raise TypeError(
                    f"{self._member.who} DistributedOptimizer: model must be a torch.nn.Module or "
                    f"a list of them, not {type(model).__name__}"
                )
        mine = self._trainable()
        if not mine:
            self.fail("no parameter of the optimizer requires a gradient")
        known = {id(param) for model in self._models for param in model.parameters()}
        strangers = [list(param.shape) for param in mine if id(param) not in known]
        if self._models and strangers:
            self.fail(
                f"the optimizer has parameters that are none of the model's, of shapes "
                f"{strangers}; give all models that it optimizes"
            )
        self._check_apart(mine)

    def _check_apart(self, params: Sequence[Parameter]) -> None:
        """Those that overlap would be torn apart."""
        in_order = sorted((p for p in params if p.numel()), key=lambda param: param.data_ptr())
        for one, other in pairwise(in_order):
            if one.data_ptr() + one.nbytes > other.data_ptr():
                self.fail(
                    f"parameters of shapes {list(one.shape)} and {list(other.shape)} overlap in "
                    "memory; tie them by using one Parameter in both places"
                )

    def _compressor_of(self, compression: Any) -> Compressor | None:
        if isinstance(compression, str):
            if compression not in NAMED:
                self.fail(f"compression must be one of {', '.join(NAMED)}, not {compression!r}")
            return NAMED[compression]()
        if compression is not None and not hasattr(compression, "decompress"):
            self.fail(f"compression must be a name or a Compressor, not {compression!r}")
        return cast("Compressor | None", compression)

    def _check_communication(self, name: str) -> None:
        if name not in COMMUNICATIONS:
            self.fail(f"communication must be one of {', '.join(COMMUNICATIONS)}, not {name!r}")
        if self._compressor is not None and name != "neighbor_allreduce":
            self.fail(f"compression is of neighbor_allreduce alone, not of {name}")
        if name in WINDOWS and isinstance(self._order, Order) and not self._order.takes_windows:
            kind = type(self._order).__name__
            self.fail(f"{kind} averages more than parameters, which {name} does not do")


def _kinds_of(params: Sequence[Parameter]) -> list[tuple[int, torch.dtype, torch.device]]:
    return [(id(param), param.dtype, param.device) for param in params]
