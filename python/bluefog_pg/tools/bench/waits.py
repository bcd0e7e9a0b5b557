"""This module says who waited for whom, from the moments at which ranks were ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Moments:
    """A Moments has the times of each step of a rank, by the clock that all processes share."""

    begun: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)  # when the last gradient was there
    ended: list[float] = field(default_factory=list)


def waited_for(
    ranks: Sequence[Moments], sources: Sequence[Sequence[Sequence[int]]], at_begin: bool, first: int
) -> list[dict[int, float]]:
    """Return for each rank the seconds that it waited for each other one.

    A rank that has computed its gradients waits for the source that is ready last. Moving the
    data afterwards does not count.

    Args:
        ranks: the moments of all ranks, which made as many steps.
        sources: for each rank, the ranks that it receives from in each step, again and again.
        at_begin: whether a rank gives its data away when its step begins, not when it has computed.
        first: the number of the first step that counts.
    """
    found: list[dict[int, float]] = []
    for mine, schedule in zip(ranks, sources, strict=True):
        waits: dict[int, float] = {}
        for step in range(first, len(mine.ended)):
            ready = {
                rank: (ranks[rank].begun if at_begin else ranks[rank].computed)[step]
                for rank in schedule[step % len(schedule)]
            }
            if not ready:
                continue
            last = max(ready, key=ready.__getitem__)
            seconds = min(ready[last], mine.ended[step]) - mine.computed[step]
            if seconds > 0:
                waits[last] = waits.get(last, 0.0) + seconds
        found.append(waits)
    return found
