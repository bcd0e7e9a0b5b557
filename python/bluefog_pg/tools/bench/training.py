"""This module is what each rank does to train a synthetic model with one communication."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bluefog_pg import topology_util
from bluefog_pg._core.stats import stats
from bluefog_pg.optim.distributed_optimizer import DistributedOptimizer
from bluefog_pg.tools.bench.sent import sent_over_tcp
from bluefog_pg.tools.bench.waits import Moments, waited_for
from bluefog_pg.windows import window_stats

if TYPE_CHECKING:
    from bluefog_pg.tools.forks import Rank

MODELS = ("resnet", "gpt")
# The first two are DistributedDataParallel, and the others are DistributedOptimizer's.
COMMUNICATIONS = (
    "ddp-gloo", "ddp", "gradient_allreduce", "allreduce", "neighbor_allreduce", "win_put",
    "win_get", "push_sum", "empty",
)  # fmt: skip
# The ranks of these make as many steps as each one can, and take what has come.
OWN_PACE = ("win_put", "win_get", "empty")
_AVERAGES_IN_FORWARD = ("allreduce", "neighbor_allreduce")
TOPOLOGIES: dict[str, Callable[[int], list[Any]]] = {
    "one-peer-exp2": topology_util.OnePeerExponentialTwoGraphs,
    "exp2": lambda size: [topology_util.ExponentialTwoGraph(size)],
    "ring": lambda size: [topology_util.RingGraph(size)],
    "full": lambda size: [topology_util.FullyConnectedGraph(size)],
}
_WARM = 3  # steps that do not count
_LIMIT = timedelta(seconds=60)


@dataclass(frozen=True)
class Training:
    """A Training says what is trained, how ranks communicate, and for about how many seconds."""

    model: str
    communication: str
    topology: str
    seconds: float
    slow_rank: int | None
    slow_factor: float

    def run(self, me: Rank) -> None:
        """Tell what rank 0 has found out about all ranks."""
        found = _Run(self, me).measure()
        if me.number == 0:
            me.tell(found)
        dist.barrier()
        dist.destroy_process_group()


class _Run:
    """A _Run is the training of one rank."""

    def __init__(self, training: Training, me: Rank) -> None:
        self._training, self._me = training, me
        me.join("bluefog", _LIMIT)
        self._gloo = dist.new_group(backend="gloo", timeout=_LIMIT)
        self._source = importlib.import_module(f"bluefog_pg.tools.bench.{training.model}")
        self._random = torch.Generator().manual_seed(me.number)
        self._moments = Moments()
        torch.manual_seed(0)  # gives all ranks the same first parameters
        self._model: nn.Module = self._source.make()
        self._parameters = sum(p.numel() for p in self._model.parameters())
        self._graphs = TOPOLOGIES[training.topology](me.size)
        self._pause = 0.0
        if me.number == training.slow_rank:
            self._pause = (training.slow_factor - 1) * self._computing()
        self._computed = 0.0
        for parameter in self._model.parameters():
            parameter.register_post_accumulate_grad_hook(self._note)
        sgd = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        self._callee, self._optimizer = self._distributed(sgd)

    def measure(self) -> dict[str, Any]:
        for _ in range(_WARM):
            self._step()
        slowest = self._slowest()
        dist.barrier(group=self._gloo)
        sent, waited, begun = self._sent(), self._waited(), time.monotonic()
        if self._training.communication in OWN_PACE:
            while time.monotonic() < begun + self._training.seconds:
                self._step()
        else:
            for _ in range(max(_WARM, int(self._training.seconds / slowest))):
                self._step()
            dist.barrier(group=self._gloo)  # A rank that runs ahead has to wait for others later.
        seconds, sent = time.monotonic() - begun, self._sent() - sent
        waited = self._waited() - waited
        steps = len(self._moments.ended) - _WARM
        images = len(self._source.batch(self._random)[0])
        mine = {
            "rate": steps * images / seconds,
            "sent": sent / steps,
            "seconds": seconds,
            "waited": waited,
            "moments": self._moments,
            "sources": [sorted(graph.predecessors(self._me.number)) for graph in self._graphs],
        }
        every: list[Any] = [None] * self._me.size
        dist.all_gather_object(every, mine, group=self._gloo)
        if isinstance(self._optimizer, DistributedOptimizer):
            self._optimizer.close()
        return {
            "communication": self._training.communication,
            "parameters": self._parameters,
            "batch": images,
            "unit": self._source.UNIT,
            "rates": [rank["rate"] for rank in every],
            "sent": statistics.mean(rank["sent"] for rank in every),
            "seconds": max(rank["seconds"] for rank in every),
            "waits": self._waits(every),
            "waited": [rank["waited"] for rank in every],
        }

    def _distributed(self, sgd: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        communication = self._training.communication
        if communication in ("ddp", "ddp-gloo"):
            group = self._gloo if communication == "ddp-gloo" else None
            # Buffers stay each rank's own, as they do with DistributedOptimizer.
            return DistributedDataParallel(
                self._model, process_group=group, broadcast_buffers=False
            ), sgd
        takes_topology = communication in ("neighbor_allreduce", "win_put", "win_get", "push_sum")
        return self._model, DistributedOptimizer(
            sgd, self._model, communication, topology=self._graphs if takes_topology else None
        )

    def _step(self) -> None:
        self._moments.begun.append(time.monotonic())
        self._optimizer.zero_grad()
        self._loss(self._callee, self._pause).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._moments.computed.append(self._computed)
        self._moments.ended.append(time.monotonic())

    def _loss(self, model: nn.Module, pause: float = 0.0) -> torch.Tensor:
        inputs, targets = self._source.batch(self._random)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        time.sleep(pause)
        return loss

    def _computing(self) -> float:
        """Return the seconds that this rank computes in a step, while other ranks compute, too."""
        times = []
        for _ in range(_WARM):
            begun = time.monotonic()
            self._loss(self._model).backward()  # type: ignore[no-untyped-call]
            times.append(time.monotonic() - begun)
        return statistics.median(times)

    def _note(self, _: torch.Tensor) -> None:
        self._computed = time.monotonic()

    def _slowest(self) -> float:
        """Return the seconds of the last step of the slowest rank."""
        last = torch.tensor(self._moments.ended[-1] - self._moments.begun[-1])
        dist.all_reduce(last, dist.ReduceOp.MAX, group=self._gloo)
        return float(last)

    def _sent(self) -> int:
        """Return the bytes that this rank has sent for its training. Nobody counts what it gets."""
        if self._training.communication == "ddp-gloo":
            return sent_over_tcp()
        puts = sum(
            int(there["bytes"])
            for window in window_stats().values()
            for there in window["to"].values()
        )
        return stats()["bytes_sent"] + puts

    def _waited(self) -> float:
        """Return the seconds that the optimizer has waited; DDP's optimizer does not count them."""
        own = self._optimizer
        return own.tally.waited if isinstance(own, DistributedOptimizer) else 0.0

    def _waits(self, every: list[dict[str, Any]]) -> list[dict[int, float]]:
        communication, size = self._training.communication, self._me.size
        if communication in OWN_PACE:
            return [{} for _ in range(size)]
        sources = [rank["sources"] for rank in every]
        if communication not in ("neighbor_allreduce", "push_sum"):
            sources = [[[other for other in range(size) if other != me]] for me in range(size)]
        moments = [rank["moments"] for rank in every]
        return waited_for(moments, sources, communication in _AVERAGES_IN_FORWARD, _WARM)
