"""This module times calls by turns, so that all of them meet the same disturbances."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from bluefog_pg.tools.bench.cases import Repeating, settle

if TYPE_CHECKING:
    from bluefog_pg.tools.bench.cases import Call


@dataclass
class Plan:
    """A Plan says how many turns are timed, and how long they are."""

    rounds: int
    slice: float = 0.02  # seconds of calls in one turn
    most: int = 200  # the most calls in one turn


def slowest(seconds: list[float], gloo: dist.ProcessGroup) -> list[float]:
    """Return the time of the slowest rank in each turn, as the job is as slow as that one."""
    times = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX, group=gloo)
    largest: list[float] = times.tolist()
    return largest


def turn(call: Call, reps: int, gloo: dist.ProcessGroup) -> float:
    repeat = call.repeat if isinstance(call, Repeating) else None
    settle()
    dist.barrier(group=gloo)
    if repeat:
        return repeat(reps)
    start = time.perf_counter()
    for _ in range(reps):
        call()
    settle()
    return (time.perf_counter() - start) / reps


def repetitions(call: Call, plan: Plan, gloo: dist.ProcessGroup) -> int:
    """Return how many calls fill a turn.

    A few calls after a barrier say little about many, so this measures again with more.
    """
    turn(call, 2, gloo)
    reps = 3
    while True:
        (seconds,) = slowest([turn(call, reps, gloo)], gloo)
        wanted = max(1, min(plan.most, round(plan.slice / seconds)))
        if wanted <= 3 * reps:
            return wanted
        reps = min(wanted, 10 * reps)


def time_peer_by_peer(
    calls: list[Call], plan: Plan, gloo: dist.ProcessGroup
) -> tuple[list[int], list[list[float]]]:
    reps = [repetitions(call, plan, gloo) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    for done in range(plan.rounds):
        for k in range(len(calls)):
            # The start shifts, so that no peer always follows the same other one.
            at = (done + k) % len(calls)
            times[at].append(turn(calls[at], reps[at], gloo))
    return reps, [slowest(each, gloo) for each in times]
