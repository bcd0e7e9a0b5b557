"""Random training loops end where an oracle ends that simulates all ranks in one process."""

from __future__ import annotations

import os
import warnings

import pytest

from tests.support import harness
from tests.support.loops import Loop, Program
from tests.support.loops_oracle import Oracle

LOOPS = int(os.environ.get("LOOPS", "100"))
FIRST = int(os.environ.get("LOOPS_FROM", "0"))


def loops(rank: int, world: int, seeds: list[int]) -> list[str]:
    warnings.simplefilter("ignore")
    wrong = []
    for seed in seeds:
        program = Program.of(seed)
        off = (Loop(program, rank).run() - Oracle(program, world).run()[rank]).abs().max()
        if not off < 1e-9:
            wrong.append(f"off by {off:.1e}: {program}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_loops(pool: harness.Pool, world: int) -> None:
    seeds = range(FIRST + world - 1, FIRST + LOOPS, 4)
    for wrong in pool.run(loops, list(seeds), world=world, timeout=60 + LOOPS):
        assert not wrong, "\n".join(wrong[:3])
