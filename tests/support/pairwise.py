"""This module lists cases in which every meaningful pair of two factors' values occurs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Case = dict[str, Any]
Factors = Mapping[str, Sequence[Any]]
Keep = Callable[[Case], bool]  # is also asked of cases with some of the factors


def pairs_of(case: Case) -> Iterator[tuple[Any, ...]]:
    return ((a, case[a], b, case[b]) for a, b in itertools.combinations(case, 2))


def meaningful(keep: Keep, factors: Factors) -> list[tuple[Any, ...]]:
    return [
        (a, x, b, y)
        for a, b in itertools.combinations(factors, 2)
        for x, y in itertools.product(factors[a], factors[b])
        if keep({a: x, b: y})
    ]


def covering(keep: Keep, factors: Factors, seed: str) -> list[Case]:
    """Return cases, the same each time, that hold all pairs that `keep` lets pass.

    The search is greedy, and begins each case with a pair that is still missing.
    """
    rng = random.Random(seed)
    todo = meaningful(keep, factors)
    rng.shuffle(todo)
    missing = set(todo)
    cases = []
    for pair in todo:
        if pair in missing:
            case = completed(pair, keep, factors, missing, rng)
            missing.difference_update(pairs_of(case))
            cases.append(case)
    return cases


def completed(
    pair: tuple[Any, ...],
    keep: Keep,
    factors: Factors,
    missing: set[tuple[Any, ...]],
    rng: random.Random,
) -> Case:
    """Return a case with this pair. Each further value adds as many missing pairs as it can."""
    order = {name: i for i, name in enumerate(factors)}

    def gain(case: Case, name: str, value: Any) -> int:
        return sum(
            ((a, x, name, value) if order[a] < order[name] else (name, value, a, x)) in missing
            for a, x in case.items()
        )

    for _ in range(200):  # A choice may leave none for a later factor.
        case = {pair[0]: pair[1], pair[2]: pair[3]}
        for name in rng.sample([n for n in factors if n not in case], len(factors) - 2):
            fits = [v for v in factors[name] if keep(case | {name: v})]
            if not fits:
                break
            gains = [gain(case, name, v) for v in fits]
            case[name] = rng.choice(
                [v for v, g in zip(fits, gains, strict=True) if g == max(gains)]
            )
        if len(case) == len(factors):
            return {name: case[name] for name in factors}
    raise ValueError(f"no case holds {pair}: say in `keep` that it means nothing")
