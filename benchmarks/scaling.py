"""This program is one rank of neighbors.py: one-peer averaging among the first 2, 4, 8, ... ranks.

All numbers of ranks take turns, so that a change of the machine's pace meets each of them. A rank
that is not in a turn sleeps in the barrier of a later one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import figures
import launch
import peers
import timing
import torch
import torch.distributed as dist

from bluefog_pg.tools.bench import turns
from bluefog_pg.tools.bench.cases import Call, Case

OP = "neighbor_one_peer"


@dataclass
class Job:
    """A Job is what one peer does among the first n ranks."""

    case: Case
    peer: Any
    call: Call
    gloo: dist.ProcessGroup
    plan: turns.Plan

    def wrong(self) -> int:
        counts = torch.tensor(self.case.wrong(self.call) if self.peer.checked else 0)
        dist.all_reduce(counts, group=self.gloo)
        return int(counts.item())


def jobs_of(
    me: launch.Rank, size: int, groups: dict[int, tuple[Any, Any]], plan: turns.Plan
) -> list[Job | None]:
    """Return the jobs in one order for all ranks. A job is None where this rank is not in it."""
    cores = len(os.sched_getaffinity(0))
    jobs: list[Job | None] = []
    for n, (bluefog, gloo) in groups.items():
        if me.rank >= n:
            jobs += [None, None]
            continue
        case = Case(OP, me.rank, n, size)
        # A rank gets to run once in n / cores slices of the scheduler.
        longer = replace(plan, slice=plan.slice * max(1, n / cores))
        for peer in (peers.BluefogPeer("bluefog", bluefog), peers.AddPeer()):
            call = peer.bind(case)
            assert call
            jobs.append(Job(case, peer, call, gloo, longer))
    return jobs


def measure(jobs: list[Job | None], rounds: int) -> list[dict[str, Any]]:
    mine = {at: job for at, job in enumerate(jobs) if job}
    wrong = {at: job.wrong() for at, job in mine.items()}
    reps = {at: turns.repetitions(job.call, job.plan, job.gloo) for at, job in mine.items()}
    times: dict[int, list[float]] = {at: [] for at in mine}
    for done in range(rounds):
        for k in range(len(jobs)):
            at = (done + k) % len(jobs)
            if at in mine:
                times[at].append(turns.turn(mine[at].call, reps[at], mine[at].gloo))
    return [
        timing.row_of(job.case, job.peer, turns.slowest(times[at], job.gloo), wrong[at])
        | {"reps": reps[at]}
        for at, job in mine.items()
    ]


def main() -> None:
    me = launch.join()
    plan = turns.Plan(**me.args["plan"])
    everyone = timing.start(me, [])
    groups = {
        n: tuple(
            dist.new_group(list(range(n)), backend=name, timeout=timing.LIMIT)
            for name in ("bluefog", "gloo")
        )
        for n in me.args["ranks"]
    }
    rows: list[Any] = []
    for size in me.args["sizes"]:
        rows += measure(jobs_of(me, size, groups, plan), plan.rounds)
    if me.rank == 0:
        for n in groups:
            said = [figures.line(row) for row in rows if row["ranks"] == n]
            print("\n".join([figures.heading(OP, n), *said]), flush=True)
    me.give_back(rows)
    dist.barrier(group=everyone)
    dist.destroy_process_group()


if __name__ == "__main__":
    timing.run_rank(main)
