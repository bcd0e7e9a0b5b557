"""Random programs of neighbor calls end as the oracle of their numbers says."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import Ranks
from tests.support.random_calls import (
    QUIET_FAULTS,
    SLOW_FAULTS,
    Action,
    Expected,
    Oracle,
    Program,
)

PROGRAMS = int(os.environ.get("PROGRAMS", "200"))
FIRST = int(os.environ.get("PROGRAMS_FROM", "0"))
LIMIT = 0.5 * harness.SLOW


def interrupted(call: Callable[[], Any]) -> Any:
    with inrank.interrupted_in(0.02):
        return call()


def begun(action: Action, value: float, group: Any) -> Any:
    """The Work, or the result."""
    import bluefog_pg

    x = torch.full((action.n,), value, requires_grad=action.has_gradient)
    kwargs: dict[str, Any] = {"name": action.name, "group": group, "async_op": action.is_async}
    own = float("nan") if action.fault == "refused" else 1.0
    if action.op == "pair":
        return bluefog_pg.pair_gossip(x, action.src[0], self_weight=1.0, pair_weight=1.0, **kwargs)
    if action.op == "gather":
        src = [*action.src, dist.get_rank(group)] if action.fault == "refused" else action.src
        return bluefog_pg.neighbor_allgather(
            x, src_ranks=list(src), dst_ranks=list(action.dst), **kwargs
        )
    result = bluefog_pg.neighbor_allreduce(
        [x] if action.in_list else x,
        self_weight=own,
        src_weights=dict.fromkeys(action.src, 1.0),
        dst_weights=list(action.dst),
        **kwargs,
    )
    if not action.has_gradient:
        return result
    total = result[0] if action.in_list else result
    (value * total.sum()).backward()
    return torch.cat([total.detach(), x.grad])


def _of_one_value(x: torch.Tensor) -> tuple[float, int]:
    (value,) = x.unique().tolist()
    return value, len(x)


def values(action: Action, result: Any) -> list[list[float]]:
    """The numbers in a call's result, and how often each is there."""
    if action.has_gradient:
        total, grad = result.split(action.n)
        return [[*_of_one_value(total)], [*_of_one_value(grad)]]
    if action.is_async:
        result = result.result()[0]
    elif action.in_list:
        result = result[0]
    numbers, counts = result.unique_consecutive(return_counts=True)
    return [list(each) for each in zip(numbers.tolist(), counts.tolist(), strict=True)]


def called(action: Action, value: float, group: Any) -> list[list[float]]:
    return values(action, begun(action, value, group))


def executed(program: Program, rank: int, group: Any) -> list[Any]:
    actions = program.ranks[rank]
    told: list[Any] = [None] * len(actions)
    names = {action.name if program.in_threads else None for action in actions}
    threads = [
        threading.Thread(target=execute, args=(rank, actions, of_name(actions, name), group, told))
        for name in names - {None}
    ]
    for thread in threads:
        thread.start()
    mine = of_name(actions, None) if program.in_threads else list(range(len(actions)))
    execute(rank, actions, mine, group, told)
    for thread in threads:
        thread.join()
    return told


def of_name(actions: list[Action], name: str | None) -> list[int]:
    return [i for i, action in enumerate(actions) if action.name == name]


def waited_for(action: Action, work: dist.Work) -> list[list[float]]:
    work.wait()
    return values(action, work)


def execute(rank: int, actions: list[Action], mine: list[int], group: Any, told: list[Any]) -> None:
    pending: dict[int, Any] = {}
    for i in mine:
        action = actions[i]
        if action.fault == "late":
            time.sleep(1.3 * LIMIT)
        if action.fault == "stopped":
            go_on = f"sleep {1.3 * LIMIT}; kill -CONT {os.getpid()}"
            with subprocess.Popen(["sh", "-c", go_on]):
                os.kill(os.getpid(), signal.SIGSTOP)
        if action.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if action.is_async:
            work = inrank.outcome(begun, action, 1000.0 * rank + i, group)
            if isinstance(work, inrank.Raised):
                told[i] = work
            else:
                pending[i] = work
            continue
        call = partial(called, action, 1000.0 * rank + i, group)
        if action.fault == "interrupted":
            call = partial(interrupted, call)
        told[i] = inrank.outcome(call)
    for i, work in pending.items():
        told[i] = inrank.outcome(partial(waited_for, actions[i], work))


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


# Between hosts a rank that waits learns of its source's call by the next message.
IS_FAR = os.environ.get("BLUEFOG_TRANSPORT") == "mpi"


def fault_of(told: Any, want: Expected, fault: str) -> str:
    """What is wrong with one outcome; nothing where it is right."""
    if isinstance(told, inrank.Raised):
        is_lenient = fault in SLOW_FAULTS or (IS_FAR and fault != "")
        may_fail = want.must_fail or want.may_fail or is_lenient
        kinds = KINDS.get(fault, {"Mismatch", "CollectiveTimeout"})
        if IS_FAR or not want.must_fail:  # one that sends to a rank that makes no more calls
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
        if told[rank] is not None  # else it is dead
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
