"""Averages for which nobody waits: each rank takes what has come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bluefog_pg.windows import Window

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import Tensor

    from bluefog_pg._C import WindowWork
    from bluefog_pg.optim.bucket import Bucket
    from bluefog_pg.optim.communication import Finish
    from bluefog_pg.optim.routes import Route

Send = Callable[[Window], "WindowWork | None"]


class WindowAverage:
    """With what lies in this rank's slots, of which each bucket has its own."""

    def __init__(
        self, prefix: str, send: Send, route: Route, group: dist.ProcessGroup | None
    ) -> None:
        """`send` begins what changes slots: those of others, or this rank's."""
        self._prefix, self._send, self._group = prefix, send, group
        self._windows: dict[Tensor, Window] = {}
        self._neighbors: tuple[Iterable[int], Iterable[int]] | None = None
        self._weights: dict[str, Any] = {}
        if route.src_weights is not None and route.dst_weights is not None:
            self._neighbors = list(route.src_weights), list(route.dst_weights)
            self._weights = {
                "self_weight": route.self_weight,
                "neighbor_weights": route.src_weights,
            }

    def open(self, buckets: list[Bucket]) -> None:
        for number, bucket in enumerate(buckets):
            self._windows[bucket.flat] = Window(
                bucket.flat,
                f"{self._prefix}.{number}",
                neighbors=self._neighbors,
                group=self._group,
            )

    def advance(self) -> None:
        pass

    def begin(self, flat: Tensor) -> Finish:
        window = self._windows[flat]
        work = self._send(window)

        def finish() -> None:
            if work is not None:
                work.wait()
            window.update(**self._weights)

        return finish

    def close(self) -> None:
        while self._windows:
            _, window = self._windows.popitem()
            window.free()
