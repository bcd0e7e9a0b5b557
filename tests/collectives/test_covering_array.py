"""Every call gives what the oracle gives, for each pair of kind, operator, size, layout and so on.

Each call has a covering array of its own (see pairwise.py). What fails is named `call:number`;
that case alone, in its world:

    BLUEFOG_TEST_CASE=all_reduce:17 pytest tests/collectives/test_covering_array.py
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest
import torch

from tests.support import harness, oracle, pairwise
from tests.support.attempts import CALLS, NAMED, SIZES, Attempt
from tests.support.guarded import keep_freed_memory
from tests.support.pairwise import Case

pytestmark = pytest.mark.mpi

RANKS = 8
WORLDS = (1, 2, 3, 5, 8)
ONLY = os.environ.get("BLUEFOG_TEST_CASE", "")
WIDE = (torch.float32, torch.bfloat16, torch.int64)


def meaningful(case: Case) -> bool:
    """Return whether these factors, which may be some or all, go together."""

    def has(name: str, *values: Any) -> bool:
        return case.get(name, *values[:1]) in values

    large = case.get("size") == "8M"
    return (
        ("op" not in case or "dtype" not in case or oracle.allowed(case["op"], case["dtype"]))
        and not (case.get("layout") == "scalar" and not has("size", "1"))
        and not (case.get("form") == "in place" and not has("layout", "contiguous"))
        and not (large and not (has("dtype", *WIDE) and has("world", *WORLDS[:3])))
    )


@cache
def cases_of(name: str) -> list[Case]:
    common = {"size": SIZES, "world": WORLDS, "async": (False, True)}
    return pairwise.covering(meaningful, common | CALLS[NAMED[name]], name)


def listing(bad: list[str], cases: int) -> str:
    """Return a text of the first errors."""
    return f"{len(bad)} of {cases} wrong:\n" + "\n".join(bad[:20])


def run_cases(rank: int, world: int, name: str, cases: list[tuple[int, Case]]) -> list[list[int]]:
    """Return, for each case, the digests of those results that must be alike on all ranks."""
    keep_freed_memory()
    told, bad = [], []
    for number, case in cases:
        attempt = Attempt(rank, world, number, case)
        try:
            NAMED[name](attempt)
        except Exception as error:
            error.add_note(f"{name}:{number} {case}")
            raise
        told.append(attempt.digests)
        if wrong := attempt.verdict():
            bad.append(f"BLUEFOG_TEST_CASE={name}:{number} {case}: {'; '.join(wrong)}")
    assert not bad, listing(bad, len(cases))
    return told


def chosen() -> list[tuple[int, str]]:
    if ONLY:
        name, _, number = ONLY.partition(":")
        return [(cases_of(name)[int(number)]["world"], name)]
    return [(world, name) for world in WORLDS for name in NAMED]


@pytest.mark.slow
@pytest.mark.parametrize(("world", "name"), chosen())
def test_against_the_oracle(pool: harness.Pool, world: int, name: str) -> None:
    cases = [(i, c) for i, c in enumerate(cases_of(name)) if c["world"] == world]
    if ONLY:
        cases = [(i, c) for i, c in cases if ONLY == f"{name}:{i}"]
    told = pool.run(run_cases, name, cases, world=world, timeout=90)
    bad = [
        f"BLUEFOG_TEST_CASE={name}:{number} {case}: ranks hold different bits"
        for (number, case), *of_ranks in zip(cases, *told, strict=True)
        if any(digests != of_ranks[0] for digests in of_ranks)
    ]
    assert not bad, listing(bad, len(cases))


def test_there_are_many_cases() -> None:
    assert sum(len(cases_of(name)) for name in NAMED) >= 3000
