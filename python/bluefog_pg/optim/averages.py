"""Averages that begin and end on all ranks concerned: of neighbours, of machines, of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from bluefog_pg import collectives, neighbors
from bluefog_pg.optim.communication import Communication, Finish
from bluefog_pg.optim.routes import Route

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg.optim.knobs import Knobs


class Average(Communication):
    """Of each tensor by one operation, which gives a new tensor."""

    def __init__(self, start: Callable[[Tensor], dist.Work]) -> None:
        self._start = start

    def begin(self, flat: Tensor) -> Finish:
        work = self._start(flat)

        def finish() -> None:
            work.wait()
            flat.copy_(work.result()[0])

        return finish


def started(
    route: Route,
    tensors: Tensor | list[Tensor],
    group: dist.ProcessGroup | None,
    enable_topo_check: bool = False,
) -> dist.Work:
    """An average of neighbours over that route."""
    return neighbors.neighbor_allreduce(
        tensors,
        self_weight=route.self_weight,
        src_weights=route.src_weights,
        dst_weights=route.dst_weights,
        enable_topo_check=enable_topo_check,
        group=group,
        async_op=True,
    )


class NeighborAverage(Average):
    """Over the group's topology, or the edges that the knobs say."""

    def __init__(self, knobs: Knobs, group: dist.ProcessGroup | None) -> None:
        super().__init__(self._average)
        self._knobs, self._group = knobs, group
        self._route = Route()

    def advance(self) -> None:
        self._route = self._knobs.route()

    def _average(self, flat: Tensor) -> dist.Work:
        return started(self._route, flat, self._group, self._knobs.enable_topo_check)


class MachineAverage(Average):
    """Over the topology of the group's machines, or the edges that the knobs say."""

    def __init__(self, knobs: Knobs, group: dist.ProcessGroup | None) -> None:
        super().__init__(self._average)
        self._knobs, self._group = knobs, group

    def _average(self, flat: Tensor) -> dist.Work:
        knobs = self._knobs
        return neighbors.hierarchical_neighbor_allreduce(
            flat,
            self_weight=knobs.self_weight,
            src_machine_weights=knobs.src_machine_weights,
            dst_machine_weights=knobs.dst_machine_weights,
            enable_topo_check=knobs.enable_topo_check,
            group=self._group,
            async_op=True,
        )


class GlobalAverage(Average):
    """Of all ranks of the group."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        super().__init__(lambda flat: collectives.allreduce(flat, group=group, async_op=True))
