"""What a program may turn between two steps of an optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bluefog_pg.optim.routes import Route


@dataclass
class Knobs:
    """None, those of the routes: of the topology that the optimizer was given, or the group's."""

    routes: Iterator[Route]
    self_weight: float | None = None
    src_weights: Mapping[int, float] | None = None
    dst_weights: Mapping[int, float] | Sequence[int] | None = None
    src_machine_weights: Mapping[int, float] | None = None
    dst_machine_weights: Mapping[int, float] | Sequence[int] | None = None
    enable_topo_check: bool = False

    def route(self) -> Route:
        """Of the next step."""
        following = next(self.routes)
        if self.self_weight is None and self.src_weights is None and self.dst_weights is None:
            return following
        return Route(self.self_weight, self.src_weights, self.dst_weights)
