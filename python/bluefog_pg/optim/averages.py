"""This module has the averages for which ranks meet: with neighbors, machines, or all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bluefog_pg import collectives, neighbors
from bluefog_pg.optim.communication import Communication, Finish, FinishMove
from bluefog_pg.optim.routes import Route, settled
from bluefog_pg.topology.edges import edges_for_allreduce

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.step_overrides import StepOverrides


def ending(work: dist.Work, tensor: Tensor) -> Finish:
    """Return a function that waits for an operation, and writes its result to the tensor."""

    def finish() -> None:
        work.wait()
        tensor.copy_(work.result()[0])

    return finish


def begin_average(
    tensors: Tensor | list[Tensor],
    route: Route,
    group: dist.ProcessGroup | None,
    enable_topo_check: bool = False,
    name: str | None = None,
) -> dist.Work:
    """Begin an average with the neighbors of the route, and return its Work."""
    return neighbors.neighbor_allreduce(
        tensors,
        self_weight=route.self_weight,
        src_weights=route.src_weights,
        dst_weights=route.dst_weights,
        enable_topo_check=enable_topo_check,
        name=name,
        group=group,
        async_op=True,
    )


class NeighborAverage(Communication):
    """A NeighborAverage averages over the group's topology, or the edges that overrides name."""

    activity = "NEIGHBOR_ALLREDUCE"

    def __init__(self, overrides: StepOverrides, member: GroupState) -> None:
        self._overrides, self._member = overrides, member
        self._route = Route()

    def advance(self) -> None:
        super().advance()
        route = self._overrides.route()
        if route.dst_weights is not None and route.src_weights is None:
            (own, sources), _ = settled(Route(), self._member)
            route = Route(own, sources, route.dst_weights)
        self._route = route

    def begin(self, flat: Tensor) -> Finish:
        check = self._overrides.enable_topo_check
        work = begin_average(flat, self._route, self._member.group, check, self._name)
        return ending(work, flat)

    def begin_move(self, flat: Tensor) -> FinishMove:
        route, op = self._route, "neighbor_allreduce"
        edges = edges_for_allreduce(
            self._member, op, flat, route.self_weight, route.src_weights, route.dst_weights
        )
        if any(weight != 1 for _, weight in edges.destinations):
            return super().begin_move(flat)
        weights = {rank: weight / edges.divisor for rank, weight in edges.sources}
        rest = edges.self_weight / edges.divisor + sum(weights.values()) - 1
        work = neighbors.neighbor_allgather(
            flat,
            src_ranks=list(weights),
            dst_ranks=[rank for rank, _ in edges.destinations],
            enable_topo_check=self._overrides.enable_topo_check,
            name=self._name,
            group=self._member.group,
            async_op=True,
        )

        def finish_move() -> Tensor:
            work.wait()
            mine = flat.to(torch.promote_types(flat.dtype, torch.float64))
            # The rest is 0 up to rounding if the weights sum to 1, as those of an average do.
            move = mine * rest if abs(rest) > 1e-6 else torch.zeros_like(mine)
            theirs = work.result()[0].view(-1, flat.numel())
            for other, weight in zip(theirs, weights.values(), strict=True):
                move.add_(other - mine, alpha=weight)
            return move

        return finish_move


class MachineAverage(Communication):
    """A MachineAverage averages over the machines' topology, or the edges that overrides name."""

    activity = "HIERARCHICAL_NEIGHBOR_ALLREDUCE"

    def __init__(self, overrides: StepOverrides, group: dist.ProcessGroup | None) -> None:
        self._overrides, self._group = overrides, group

    def begin(self, flat: Tensor) -> Finish:
        overrides = self._overrides
        work = neighbors.hierarchical_neighbor_allreduce(
            flat,
            self_weight=overrides.self_weight,
            src_machine_weights=overrides.src_machine_weights,
            dst_machine_weights=overrides.dst_machine_weights,
            enable_topo_check=overrides.enable_topo_check,
            name=self._name,
            group=self._group,
            async_op=True,
        )
        return ending(work, flat)


class GlobalAverage(Communication):
    """A GlobalAverage averages over all ranks of the group."""

    makes_alike = True
    activity = "ALLREDUCE"

    def __init__(self, member: GroupState) -> None:
        self._member = member

    def begin(self, flat: Tensor) -> Finish:
        group = self._member.group
        if self._name is None:
            return ending(collectives.allreduce(flat, group=group, async_op=True), flat)
        # An exchange that is made again meets others by its name. Collectives have no names, so
        # neighbor operations with all ranks take their place.
        weight = 1 / self._member.size
        others = [rank for rank in range(self._member.size) if rank != self._member.rank]
        everyone = Route(weight, dict.fromkeys(others, weight), others)
        return ending(begin_average(flat, everyone, group, name=self._name), flat)
