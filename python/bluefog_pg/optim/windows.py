"""Averages for which nobody waits: each rank takes what has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bluefog_pg.optim.communication import Communication, Finish
from bluefog_pg.optim.routes import settled
from bluefog_pg.windows import Window

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg._C import WindowWork
    from bluefog_pg._member import Member
    from bluefog_pg.optim.bucket import Bucket
    from bluefog_pg.optim.routes import Route

Send = Callable[[Window], "WindowWork | None"]


class WindowAverage(Communication):
    """With what lies in this rank's slots, of which each bucket has its own.

    A rank that has died stops nobody, and counts no more; one that nothing has come from counts not
    yet. This rank's own parameters have their weights.
    """

    def __init__(self, prefix: str, send: Send, route: Route, member: Member) -> None:
        """`send` begins what changes slots: those of others, or this rank's."""
        self._prefix, self._send, self._group = prefix, send, member.group
        self._own, self._weights, self._destinations = settled(route, member)
        self._windows: dict[Tensor, Window] = {}

    def open(self, buckets: list[Bucket]) -> None:
        for number, bucket in enumerate(buckets):
            self._windows[bucket.flat] = Window(
                bucket.flat,
                f"{self._prefix}.{number}",
                neighbors=(list(self._weights), self._destinations),
                on_peer_failure="drop",
                group=self._group,
            )

    def begin(self, flat: Tensor) -> Finish:
        window = self._windows[flat]
        work = self._send(window)

        def finish() -> None:
            if work is not None:
                work.wait()
            own, weights = self._of_those_who_count(window)
            window.update(self_weight=own, neighbor_weights=weights)

        return finish

    def close(self) -> None:
        while self._windows:
            _, window = self._windows.popitem()
            window.free()

    def _of_those_who_count(self, window: Window) -> tuple[float, dict[int, float]]:
        """This rank's own weight, and the others'."""
        states = window.states()
        weights = {
            rank: weight
            for rank, weight in self._weights.items()
            if states[rank].changes and not states[rank].has_ended
        }
        rest = (weight for rank, weight in self._weights.items() if rank not in weights)
        return self._own + sum(rest), weights
