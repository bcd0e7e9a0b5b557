"""Random programs of neighbor calls on an accelerator end as the oracle of their numbers says."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank, on_device
from tests.support.environment import simulated_accelerator
from tests.support.random_calls import QUIET_FAULTS, SLOW_FAULTS, Oracle, Program
from tests.support.random_runs import FIRST, LIMIT, PROGRAMS, executed

pytestmark = pytest.mark.thorough
# A program with that fault may raise these kinds of errors, and one without a fault none.
KINDS = {
    "": set[str](),
    "edges": {"Mismatch"},
    "kind": {"Mismatch"},
    "refused": {"Mismatch", "ValueError"},
}
OTHER_KINDS = {"Mismatch", "CollectiveTimeout", "Aborted", "KeyboardInterrupt"}
# A rank has heard so long after its last call whether a call has failed on any rank.
HEARS = 1.0 * harness.SLOW


def run_programs(device: Any, rank: int, world: int, programs: list[Program]) -> list[Any]:
    """Return, for each program, what came of each call, and whether the group's calls are over."""
    import bluefog_pg

    told = []
    for program in programs:
        group = dist.new_group(timeout=timedelta(seconds=LIMIT))
        edges: dict[str, Any] = {"self_weight": 1.0, "src_weights": {}, "dst_weights": []}
        x = torch.ones(1, device=device.name)
        first = bluefog_pg.neighbor_allreduce(x, group=group, async_op=True, **edges)
        outcomes = executed(program, rank, group)
        dist.barrier()
        time.sleep(HEARS if program.fault else 0.1)
        told.append((outcomes, inrank.catch(first.wait)))
        dist.barrier()
        dist.destroy_process_group(group)
    return told


def judge(program: Program, told: list[Any], is_strict: bool) -> list[str]:
    """Return what is wrong.

    That may be a value of two calls, an error of a right program, an error that only one rank hears
    of, or no error where there has to be one.
    """
    expected = Oracle(program).run()
    wrong = []
    is_over = [over is not None for _, over in told]
    for rank, (outcomes, _) in enumerate(told):
        for i, (outcome, want) in enumerate(zip(outcomes, expected[rank], strict=True)):
            if not isinstance(outcome, inrank.Raised):
                # Before an error is heard, a value may be wrong.
                may_differ = not is_strict and is_over[rank]
                if (want.must_fail or outcome != want.value) and not may_differ:
                    wrong.append(f"rank {rank} call {i} gave {outcome}, not {want}")
            elif outcome.kind not in KINDS.get(program.fault, OTHER_KINDS):
                wrong.append(f"rank {rank} call {i} failed: {outcome.kind}: {outcome.text}")
    if any(is_over) and not program.fault:
        wrong.append("the group's calls are over")
    if any(is_over) != all(is_over):
        wrong.append(f"the group's calls are over on some ranks: {is_over}")
    must_fail = any(
        (want.must_fail and action.fault != "refused") or want.may_fail
        for actions, each in zip(program.ranks, expected, strict=True)
        for action, want in zip(actions, each, strict=True)
    )
    if program.fault in QUIET_FAULTS and must_fail != all(is_over):
        wrong.append(f"the group's calls are over: {is_over}")
    return [
        f"seed {program.seed}, world {program.world}, fault {program.fault!r}: {text}"
        for text in wrong
    ]


@pytest.mark.parametrize("check", ["", "before"], ids=["beside", "before"])
@pytest.mark.parametrize("faults", [QUIET_FAULTS, SLOW_FAULTS[:-1]], ids=["quiet", "slow"])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_programs_on_an_accelerator(world: int, faults: tuple[str, ...], check: str) -> None:
    share = max(2, PROGRAMS // 40)
    seeds = range(FIRST + world, FIRST + world + 10 * share, 10)
    programs = [Program.of(seed, world, faults, in_one_order=True) for seed in seeds]
    env = {"BLUEFOG_ACCELERATOR": simulated_accelerator(), "BLUEFOG_CHECK": check}
    told = on_device.run(run_programs, "simulated", world, programs, seconds=60 + 10 * share, **env)
    wrong = [
        text
        for i, program in enumerate(programs)
        for text in judge(program, [each[i] for each in told], check == "before")
    ]
    assert not wrong, "\n".join(wrong[:5])
