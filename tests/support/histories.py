"""This module checks histories of window calls against the memory model of docs/semantics.md.

Each rank notes what it called, when that began and ended, and what it saw. A slot is a register
with one writer and one owner, whose calls take effect once each, in the order of each of the two,
between their begin and their end. The checker keeps every state that a slot may be in, and lets a
history pass as long as there is one.
"""

from __future__ import annotations

import bisect
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import torch

WIDTH = 64  # the elements of a window, which all have one value unless the window was torn
TORN = -1


class Kind(IntEnum):
    """A Kind says what is called: by a slot's writer, by its owner, or on a tensor."""

    PUT = 0
    ADD = 1
    SEE = 2
    TAKE = 3
    FETCH = 4
    SET = 5


class Event(NamedTuple):
    kind: Kind
    peer: int
    value: int  # the value that was put, added or seen; a fetch has none
    begin: int  # nanoseconds
    end: int


@dataclass
class Recorder:
    """A Recorder makes a rank's random calls on a window over WIDTH float64, zeros first."""

    window: Any
    rank: int
    world: int
    chance: random.Random

    def run(self, calls: int) -> list[tuple[int, ...]]:
        self.ones = torch.ones(WIDTH, dtype=torch.float64)
        return [tuple(self.one(number)) for number in range(calls)]

    def one(self, number: int) -> Event:
        peer = self.chance.choice([r for r in range(self.world) if r != self.rank])
        kinds, weights = list(Kind), (30, 30, 20, 14, 3, 3)
        kind = self.chance.choices(kinds, weights)[0]
        value = self.chance.randrange(1, 1 << 40)
        excludes = self.chance.random() < 0.1
        begin = time.monotonic_ns()
        seen = self.call(kind, peer, value, excludes)
        return Event(kind, peer, value if seen is None else seen, begin, time.monotonic_ns())

    def call(self, kind: Kind, peer: int, value: int, excludes: bool) -> int | None:
        window = self.window
        if kind == Kind.PUT:
            window.put(self.ones * value, dst_weights=[peer], require_mutex=excludes)
        elif kind == Kind.ADD:
            window.accumulate(self.ones, dst_weights={peer: value}, require_mutex=excludes)
        elif kind == Kind.FETCH:
            window.get(src_weights=[peer], require_mutex=True)
        elif kind == Kind.SET:
            with window.mutex(for_self=True):
                window.tensor.fill_(value)
        else:
            return self.seen(kind, peer, excludes)
        return None

    def seen(self, kind: Kind, peer: int, excludes: bool) -> int:
        got = self.window.update(
            self_weight=0.0,
            neighbor_weights={peer: 1.0},
            reset=kind == Kind.TAKE,
            clone=True,
            require_mutex=excludes,
        )
        first = got[0]
        return int(first.item()) if got.eq(first).all() else TORN


class Tensor:
    """A Tensor knows the values that a rank's own tensor has had, and when."""

    def __init__(self, sets: list[Event]) -> None:
        self.sets = sets
        self.ends = [event.end for event in sets]
        self.begins = [event.begin for event in sets]

    def within(self, begin: int, end: int) -> list[int]:
        """Return the values that the tensor may have had between these times."""
        last = bisect.bisect_left(self.ends, begin)  # the number of sets that had ended
        first = [0] if last == 0 else [self.sets[last - 1].value]
        return first + [s.value for s in self.sets[last : bisect.bisect_left(self.begins, end)]]


@dataclass
class Slot:
    """A Slot keeps the states that a slot may be in."""

    writes: list[Event]
    tensor: Tensor

    def __post_init__(self) -> None:
        self.ends = [event.end for event in self.writes]
        self.begins = [event.begin for event in self.writes]
        self.states = {(0, 0)}  # numbers of writes that have taken effect, each with the value then

    def reached(self, event: Event) -> Iterator[tuple[int, int]]:
        """Yield the states that the slot may be in at some time during that event of the owner."""
        must = bisect.bisect_left(self.ends, event.begin)
        may = bisect.bisect_left(self.begins, event.end)
        for done, value in self.states:
            for at in range(done, may + 1):
                if at > done:
                    write = self.writes[at - 1]
                    value = write.value + (value if write.kind == Kind.ADD else 0)
                if at >= must:
                    yield at, value

    def pass_through(self, event: Event) -> None:
        before = set(self.reached(event))
        if event.kind == Kind.FETCH:
            values = self.tensor.within(event.begin, event.end)
            self.states = {(done, value) for done, _ in before for value in values}
            return
        left = {state for state in before if state[1] == event.value}
        if not left:
            values = sorted(value for _, value in before)
            raise AssertionError(f"{event} of the owner, where the slot was one of {values[:20]}")
        self.states = {(done, 0) for done, _ in left} if event.kind == Kind.TAKE else left


def check(histories: Sequence[Sequence[Sequence[int]]]) -> None:
    """Raise where no order of the ranks' calls explains what each rank saw."""
    events = [[Event(Kind(e[0]), *e[1:]) for e in history] for history in histories]
    for owner, own in enumerate(events):
        for writer, others in enumerate(events):
            writes = [e for e in others if e.peer == owner and e.kind in (Kind.PUT, Kind.ADD)]
            slot = Slot(writes, Tensor([e for e in others if e.kind == Kind.SET]))
            for event in own:
                if event.peer == writer and event.kind in (Kind.SEE, Kind.TAKE, Kind.FETCH):
                    slot.pass_through(event)
