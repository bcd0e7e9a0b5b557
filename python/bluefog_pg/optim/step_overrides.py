"""This module has what a program may set between two steps of an optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bluefog_pg.optim.routes import Route


@dataclass
class StepOverrides:
    """A StepOverrides has the weights that a program sets in place of the routes'.

    None means those of the routes, which follow the optimizer's topology, or the group's.
    """

    routes: Iterator[Route]
    self_weight: float | None = None
    src_weights: Mapping[int, float] | None = None
    dst_weights: Mapping[int, float] | Sequence[int] | None = None
    src_machine_weights: Mapping[int, float] | None = None
    dst_machine_weights: Mapping[int, float] | Sequence[int] | None = None
    enable_topo_check: bool = False
    following: Route = field(default_factory=Route, init=False)  # the last one of `routes`

    def route(self) -> Route:
        """Return the route of the next step, with the program's weights in place of its own.

        Raises:
            ValueError: the topology's iterator has ended.
        """
        try:
            self.following = next(self.routes)
        except StopIteration:
            raise ValueError(
                "[bluefog] the topology's iterator has ended; give one "
                "without end, or a list of digraphs, which begins again"
            ) from None
        route = self.following
        if self.self_weight is not None or self.src_weights is not None:
            route = replace(route, self_weight=self.self_weight, src_weights=self.src_weights)
        if self.dst_weights is not None:
            route = replace(route, dst_weights=self.dst_weights)
        return route
