"""This module makes random programs of neighbor calls, and says what they may give."""

from __future__ import annotations

import random
from collections import Counter as Count
from dataclasses import dataclass, field, replace

SMALL, LARGE = 4, 40_000
# In one call, one rank may do one of these other things than the program says.
QUIET_FAULTS = ("edges", "refused", "kind")  # Nobody waits for a timeout.
SLOW_FAULTS = ("missing", "extra", "late", "interrupted", "stopped", "killed")


@dataclass(frozen=True)
class Action:
    """An Action is one call of one rank."""

    op: str  # one of average, gather and pair
    n: int
    src: tuple[int, ...]
    dst: tuple[int, ...]
    name: str | None = None
    is_async: bool = False
    in_list: bool = False
    has_gradient: bool = False
    fault: str = ""

    def counter(self) -> tuple[str, str | None, int]:
        return (*(("pair",) if self.op == "pair" else ("",)), self.name, *self._partner())

    def _partner(self) -> tuple[int]:
        return (self.src[0],) if self.op == "pair" else (-1,)

    def signature(self) -> tuple[str, int]:
        return self.op, 0 if self.op == "gather" else self.n  # The ranks' rows may differ.


@dataclass
class Program:
    seed: int
    world: int
    ranks: list[list[Action]]
    fault: str = ""
    in_threads: bool = False  # Each name has its thread.

    @classmethod
    def of(
        cls, seed: int, world: int, faults: tuple[str, ...], in_one_order: bool = False
    ) -> Program:
        """Make a random program, whose calls keep one order on all ranks if `in_one_order`.

        An accelerator needs one order, whatever the calls' names are. docs/failures.md has the
        contract.
        """
        rng = random.Random(seed)
        ranks: list[list[Action]] = [[] for _ in range(world)]
        for _ in range(rng.randint(3, 10)):
            for rank, action in enumerate(_step(rng, world)):
                if action is not None:
                    ranks[rank].append(replace(action, name=None) if in_one_order else action)
        for actions in ranks if not in_one_order else []:
            _reorder(rng, actions)
        program = cls(seed, world, ranks)
        if rng.random() < 0.7:
            program._spoil(rng, rng.choice(faults))
        else:
            program.in_threads = not in_one_order and rng.random() < 0.3
            program._differentiate(rng)
        return program

    def _differentiate(self, rng: random.Random) -> None:
        """Go backward through some calls, on all ranks."""
        chosen = {number for number in range(20) if rng.random() < 0.3}
        for actions in self.ranks:
            unnamed = [i for i, a in enumerate(actions) if a.name is None and a.op != "pair"]
            for number, i in enumerate(unnamed):
                if number in chosen and actions[i].op == "average":
                    actions[i] = replace(actions[i], has_gradient=True, is_async=False)

    def end_at_fault(self, rank: int) -> None:
        """Remove that rank's calls from its fault on, at which it is killed."""
        at = next(i for i, action in enumerate(self.ranks[rank]) if action.fault)
        del self.ranks[rank][at:]

    def _spoil(self, rng: random.Random, fault: str) -> None:
        rank = rng.randrange(self.world)
        actions = self.ranks[rank]
        unnamed = [i for i, action in enumerate(actions) if action.name is None]
        unnamed = [i for i in unnamed if actions[i].op != "pair"]
        if not unnamed:
            return
        at = rng.choice(unnamed)
        action = actions[at]
        self.fault = fault
        if fault == "missing":
            del actions[at]
        elif fault == "extra":
            actions.insert(at, replace(action, fault=""))
        elif fault == "edges":
            ranks = [other for other in range(self.world) if other != rank]
            key = rng.choice(["src", "dst"])
            edges = set(getattr(action, key)) ^ {rng.choice(ranks)}
            actions[at] = replace(action, **{key: tuple(sorted(edges))})
        elif fault == "kind":
            other = "average" if action.op == "gather" else "gather"
            actions[at] = replace(action, op=other, in_list=False)
        else:
            actions[at] = replace(action, fault=fault)


def _step(rng: random.Random, world: int) -> list[Action | None]:
    """Return what each rank does in a step in which all agree."""
    n = rng.choice([SMALL, SMALL, LARGE])
    name = rng.choice([None, None, None, "a", "b"])
    is_async, in_list = rng.random() < 0.3, rng.random() < 0.2
    if rng.random() < 0.2:
        order = rng.sample(range(world), world)
        pairs = dict(zip(order[::2], order[1::2], strict=False))
        pairs |= {b: a for a, b in pairs.items()}
        return [
            Action("pair", n, (pairs[r],), (pairs[r],), name, is_async) if r in pairs else None
            for r in range(world)
        ]
    op = rng.choice(["average", "average", "gather"])
    edges = {(i, j) for i in range(world) for j in range(world) if i != j and rng.random() < 0.5}
    return [
        Action(
            op,
            n,
            tuple(i for i in range(world) if (i, r) in edges),
            tuple(j for j in range(world) if (r, j) in edges),
            name,
            is_async,
            in_list and op == "average",
        )
        for r in range(world)
    ]


def _reorder(rng: random.Random, actions: list[Action]) -> None:
    """Swap some calls with different counters on this rank, where nobody waits in between."""
    for i in range(len(actions) - 1):
        a, b = actions[i], actions[i + 1]
        if a.is_async and b.is_async and a.counter() != b.counter() and rng.random() < 0.5:
            actions[i], actions[i + 1] = b, a


@dataclass
class Expected:
    """An Expected says what one call may give."""

    # Each pair has a number, and how often the result has it. None says that nothing is wanted.
    value: list[list[float]] | None = None
    must_fail: bool = False
    may_fail: bool = False


@dataclass
class Oracle:
    """An Oracle knows all numbers of a program, and says what each call may give."""

    program: Program
    calls: dict[tuple[int, tuple[str, str | None, int], int], int] = field(default_factory=dict)

    def run(self) -> list[list[Expected]]:
        ranks = self.program.ranks
        numbers: list[list[int]] = []
        for rank, actions in enumerate(ranks):
            counts: Count[tuple[str, str | None, int]] = Count()
            numbers.append([])
            for i, action in enumerate(actions):
                counts[action.counter()] += 1
                numbers[rank].append(counts[action.counter()])
                self.calls[rank, action.counter(), counts[action.counter()]] = i
        expected = [
            [self._of(rank, action, numbers[rank][i], i) for i, action in enumerate(actions)]
            for rank, actions in enumerate(ranks)
        ]
        self._spread(expected, numbers)
        return expected

    def value(self, rank: int, index: int) -> float:
        return 1000.0 * rank + index

    def _met(self, rank: int, action: Action, number: int, other: int) -> int | None:
        kind, name, partner = action.counter()
        theirs = (kind, name, rank if partner >= 0 else -1)
        return self.calls.get((other, theirs, number))

    def _of(self, rank: int, action: Action, number: int, index: int) -> Expected:
        if action.fault == "refused":
            return Expected(must_fail=True)
        got = []
        for source in action.src:
            met = self._met(rank, action, number, source)
            theirs = None if met is None else self.program.ranks[source][met]
            if (
                theirs is None
                or theirs.fault == "refused"
                or rank not in theirs.dst
                or theirs.signature() != action.signature()
            ):
                return Expected(must_fail=True)
            got.append([self.value(source, met or 0), theirs.n])
        if action.op == "gather":
            return Expected(got)
        total = [[self.value(rank, index) + sum(value for value, _ in got), action.n]]
        if action.has_gradient:
            met = [self._met(rank, action, number, other) or 0 for other in action.dst]
            back = [self.value(*each) for each in zip(action.dst, met, strict=True)]
            total.append([self.value(rank, index) + sum(back), action.n])
        return Expected(total)

    def _spread(self, expected: list[list[Expected]], numbers: list[list[int]]) -> None:
        """Mark calls that may fail because of another call.

        A rank that sent in vain hears so later, and a failed call does not send what it still had
        to.
        """
        for rank, actions in enumerate(self.program.ranks):
            in_vain = False
            for i, action in enumerate(actions):
                in_vain |= any(
                    self._is_unheard(rank, action, numbers[rank][i], j) for j in action.dst
                )
                expected[rank][i].may_fail = in_vain
        calls = [(r, i) for r, each in enumerate(expected) for i in range(len(each))]
        changed = True
        while changed:
            changed = False
            for rank, i in calls:
                one = expected[rank][i]
                if not one.may_fail and self._needs_a_failed_one(expected, numbers, rank, i):
                    one.may_fail = changed = True

    def _is_unheard(self, rank: int, action: Action, number: int, other: int) -> bool:
        met = self._met(rank, action, number, other)
        if met is None:
            return True
        theirs = self.program.ranks[other][met]
        is_same = theirs.signature() == action.signature()
        return rank not in theirs.src or not is_same or theirs.fault != ""

    def _needs_a_failed_one(
        self, expected: list[list[Expected]], numbers: list[list[int]], rank: int, i: int
    ) -> bool:
        action = self.program.ranks[rank][i]
        met = [(s, self._met(rank, action, numbers[rank][i], s)) for s in action.src]
        return any(
            j is not None and (expected[s][j].may_fail or expected[s][j].must_fail) for s, j in met
        )
