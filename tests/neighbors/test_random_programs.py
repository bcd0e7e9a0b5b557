"""Random programs of neighbor calls end as the oracle of their numbers says."""

from __future__ import annotations

import itertools
import os
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import Ranks
from tests.support.random_calls import (
    QUIET_FAULTS,
    SLOW_FAULTS,
    Expected,
    Oracle,
    Program,
)
from tests.support.random_runs import FIRST, LIMIT, PROGRAMS, executed


def run_programs(rank: int, world: int, programs: list[Program]) -> list[list[Any]]:
    told = []
    for program in programs:
        group = dist.new_group(timeout=timedelta(seconds=LIMIT))
        told.append(executed(program, rank, group))
        dist.barrier()
        dist.destroy_process_group(group)
    return told


def executed_alone(rank: int, world: int, program: Program) -> list[Any]:
    return executed(program, rank, None)


KINDS = {
    "edges": {"Mismatch"},
    "kind": {"Mismatch"},
    "refused": {"Mismatch", "ValueError"},
    "interrupted": {"KeyboardInterrupt", "Mismatch", "CollectiveTimeout"},
    "killed": {"PeerFailed", "Mismatch"},
}


# Between hosts, a rank that waits learns of its source's call by the next message.
IS_FAR = os.environ.get("BLUEFOG_TRANSPORT") == "mpi"


def fault_of(told: Any, want: Expected, fault: str) -> str:
    """Return what is wrong with one outcome, or nothing where it is right."""
    if isinstance(told, inrank.Raised):
        is_lenient = fault in SLOW_FAULTS or (IS_FAR and fault != "")
        may_fail = want.must_fail or want.may_fail or is_lenient
        kinds = KINDS.get(fault, {"Mismatch", "CollectiveTimeout"})
        if IS_FAR or not want.must_fail:  # It may send to a rank that makes no more calls.
            kinds = kinds | {"CollectiveTimeout"}
        return "" if may_fail and told.kind in kinds else f"failed: {told.kind}: {told.text}"
    if want.must_fail:
        return f"gave {told}, and has no right value"
    return "" if told == want.value else f"gave {told}, not {want.value}"


def judge(program: Program, told: list[list[Any] | None]) -> list[str]:
    expected = Oracle(program).run()
    return [
        f"seed {program.seed}, world {program.world}, fault {program.fault!r}: "
        f"rank {rank} call {i} {program.ranks[rank][i]}: {wrong}"
        for rank, each in enumerate(expected)
        for i, want in enumerate(each)
        if told[rank] is not None  # A dead rank has told nothing.
        if (wrong := fault_of(told[rank][i], want, program.fault))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("faults", [QUIET_FAULTS, SLOW_FAULTS[:-1]], ids=["quiet", "slow"])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_programs(pool: harness.Pool, world: int, faults: tuple[str, ...]) -> None:
    share = PROGRAMS // 6
    seeds = range(FIRST + world, FIRST + world + 10 * share, 10)
    programs = [Program.of(seed, world, faults) for seed in seeds]
    told = pool.run(run_programs, programs, world=world, timeout=60 + 10 * share)
    wrong = [
        text
        for i, program in enumerate(programs)
        for text in judge(program, [each[i] for each in told])
    ]
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.slow
def test_programs_in_which_a_rank_is_killed() -> None:
    drawn = (Program.of(seed, 3, ("killed",)) for seed in itertools.count(FIRST))
    spoiled = (program for program in drawn if program.fault)
    for program in itertools.islice(spoiled, max(1, PROGRAMS // 20)):
        (dead,) = (r for r, each in enumerate(program.ranks) if any(a.fault for a in each))
        with Ranks(3) as ranks:
            ranks.start(executed_alone, program, world=3, store="s", timeout=10.0)
            told = ranks.values(30, dead=[dead])
        program.end_at_fault(dead)
        wrong = judge(program, [told.get(rank) for rank in range(3)])
        assert not wrong, "\n".join(wrong[:5])
