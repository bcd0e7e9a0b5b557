"""This module averages without waiting: each rank takes what has come by windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bluefog_pg.optim.communication import Communication, Finish
from bluefog_pg.optim.routes import Route, is_schedule, neighbors_in, settled
from bluefog_pg.windows import Window

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from bluefog_pg._C import WindowWork
    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.bucket import Bucket
    from bluefog_pg.optim.routes import Topology
    from bluefog_pg.optim.step_overrides import StepOverrides

Send = Callable[[Window, Route], "WindowWork | None"]


def free_prefix(models: Sequence[Module], member: GroupState) -> str:
    """Return a free prefix of window names: the models' classes, and a number if that is taken."""
    name = "+".join(type(model).__name__ for model in models)
    numbered = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
    return next(p for p in numbered if not any(w.startswith(f"{p}.") for w in member.windows))


class WindowAverage(Communication):
    """A WindowAverage averages with what lies in this rank's slots; each bucket has a window.

    A rank that has died stops nobody, and counts no more. A rank from which nothing has come does
    not count yet. This rank's own parameters take the weights of both. In a schedule, whatever its
    weights, the ranks from which something has come since the last average count equally.

    A step of win_put that finds nothing new waits for news until 5 ms after the last step.

    A put may be on its way to another host for long. Nobody waits for that either, and until it has
    arrived, this rank puts nothing else from that bucket.
    """

    reads_at_end = True

    def __init__(
        self,
        prefix: str,
        send: Send,
        is_own: bool,
        overrides: StepOverrides,
        topology: Topology | None,
        member: GroupState,
    ) -> None:
        """Prepare windows for `open`.

        Args:
            prefix: the prefix of the windows' names.
            send: begins to write to others' slots, or, if `is_own`, to this rank's slots.
            is_own: whether `send` changes this rank's slots.
            overrides: what the program may set before a step.
            topology: the optimizer's topology; None, the group's.
            member: this rank's state of the group.
        """
        self._prefix, self._send, self._is_own = prefix, send, is_own
        self.activity = "WIN_GET" if is_own else "WIN_PUT"
        self._overrides, self._group, self._who = overrides, member.group, member.who
        self._is_scheduled = is_schedule(topology)
        self._route = Route()
        if topology is not None and self._is_scheduled:
            self._neighbors = neighbors_in(topology, member)
        else:
            self._settled, destinations = settled(overrides.route(), member)
            self._neighbors = list(self._settled[1]), destinations
        self._own, self._weights = 0.0, dict[int, float]()  # the weights of the present exchange
        self._windows: dict[Tensor, Window] = {}
        self._sent: dict[Tensor, WindowWork] = {}

    def open(self, buckets: list[Bucket]) -> None:
        for number, bucket in enumerate(buckets):
            self._windows[bucket.flat] = Window(
                bucket.flat,
                f"{self._prefix}.{number}",
                neighbors=self._neighbors,
                on_peer_failure="drop",
                group=self._group,
            )

    def advance(self) -> None:
        overrides = self._overrides
        self._check_weights()
        if self._is_scheduled:
            route = overrides.route()
            sources = dict.fromkeys(route.src_weights or (), 1.0)
            self._route = Route(src_weights=sources, dst_weights=route.dst_weights)
        elif overrides.self_weight is None or overrides.src_weights is None:
            self._own, self._weights = self._settled
            self._route = Route(
                src_weights=overrides.src_weights, dst_weights=overrides.dst_weights
            )
        else:  # These weights are for the average, and must not scale what comes.
            self._own, self._weights = overrides.self_weight, dict(overrides.src_weights)
            sources = dict.fromkeys(self._weights, 1.0)
            self._route = Route(src_weights=sources, dst_weights=overrides.dst_weights)

    def begin(self, flat: Tensor) -> Finish:
        window = self._windows[flat]
        before = self._sent.get(flat)
        if before is None or before.is_completed():
            self._wait(flat)
            if work := self._send(window, self._route):
                self._sent[flat] = work

        def finish() -> None:
            if self._is_own:
                self._wait(flat)
            else:
                window.await_news()
            own, weights = self._of_those_who_count(window)
            window.update(self_weight=own, neighbor_weights=weights)

        return finish

    def close(self) -> None:
        while self._windows:
            flat, window = self._windows.popitem()
            try:
                self._wait(flat)
            finally:
                window.free()

    def _check_weights(self) -> None:
        own, sources = self._overrides.self_weight, self._overrides.src_weights
        where = f"{self._who} DistributedOptimizer: "
        # BlueFog's pull-get takes src_weights alone, which scale what comes.
        if (own is not None and sources is None) or (own is None and sources and not self._is_own):
            raise ValueError(f"{where}self_weight and src_weights must be given together")
        if sources is not None and not isinstance(sources, Mapping):
            raise ValueError(f"{where}src_weights must be a dict {{rank: weight}}, not {sources!r}")
        if strangers := sorted(set(sources or ()) - set(self._neighbors[0])):
            raise ValueError(
                f"{where}src_weights names ranks {strangers}, which are none of the topology's "
                f"in-neighbors {self._neighbors[0]}"
            )

    def _wait(self, flat: Tensor) -> None:
        if work := self._sent.pop(flat, None):
            work.wait()

    def _of_those_who_count(self, window: Window) -> tuple[float, dict[int, float]]:
        """Return this rank's own weight, and the weights of the ranks that count."""
        states = {rank: state for rank, state in window.states().items() if not state.has_ended}
        if self._is_scheduled:
            new = [rank for rank, state in states.items() if state.version]
            alike = 1 / (len(new) + 1)
            return alike, dict.fromkeys(new, alike)
        weights = {
            rank: weight
            for rank, weight in self._weights.items()
            if rank in states and states[rank].changes
        }
        rest = (weight for rank, weight in self._weights.items() if rank not in weights)
        return self._own + sum(rest), weights
