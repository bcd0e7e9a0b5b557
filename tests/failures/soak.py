"""This program kills ranks at random instants in every operation: no hang, leak or wrong result.

    python -m tests.failures.soak --rounds 1000
    python -m tests.failures.soak --rounds 1000 --windows
    sudo python -m tests.failures.soak --rounds 1000 --windows --hosts

In each round four ranks call random operations, each followed by an all_reduce whose result is
checked; one of them is killed. The others have to raise PeerFailed that names it, leave the group,
meet in a new one, and average there. With windows they add to each other's slots and take out what
is there, with and without mutexes: the survivors go on, and what they have sent each other arrives.
With hosts each rank has a network namespace of its own.
Ranks are forked from a process that has imported torch: a round takes a second.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import bluefog_pg.functional  # Otherwise each rank would import them.
import bluefog_pg.windows  # noqa: F401
from tests.support import hosts, inrank, leftovers, processes
from tests.support.stranded_ops import OPERATIONS

WORLD = 4
DEADLINE = 30.0  # seconds until a round counts as a hang
Body = Callable[[int, int, float], float]  # takes a rank, a seed and a limit


def operate_until_it_fails(rank: int, seed: int) -> inrank.Raised:
    rng = random.Random(seed)
    names = list(OPERATIONS)

    def forever() -> None:
        while True:
            OPERATIONS[rng.choice(names)](rank, WORLD, None)
            x = torch.full((rng.choice([1, 100_000]),), float(rank))
            dist.all_reduce(x)
            assert (x == sum(range(WORLD))).all(), f"all_reduce gave {x[0]}"

    error = inrank.catch(forever)
    assert error is not None
    return error


def meet_again(rank: int, victim: int) -> None:
    import bluefog_pg

    alive = [r for r in range(WORLD) if r != victim]
    inrank.init("again", alive.index(rank), len(alive))
    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(len(alive)))
    x = bluefog_pg.neighbor_allreduce(torch.full((40_000,), float(rank), dtype=torch.float64))
    assert torch.allclose(x, torch.full_like(x, sum(alive) / len(alive))), f"average {x[0]}"
    dist.destroy_process_group()


def killed() -> tuple[int, float]:
    """Return which rank was killed, and when."""
    victim, when = (inrank.directory() / "killed").read_text().split()
    return int(victim), float(when)


def hear_of_it(rank: int, seed: int, limit: float) -> float:
    """Make operations until one fails; return how long after the kill it does."""
    inrank.mark("up")
    error = operate_until_it_fails(rank, seed)
    inrank.await_file("killed")
    victim, when = killed()
    late = error.ended - when
    if error.kind != "PeerFailed" or victim not in (error.ranks or ()) or late > limit:
        raise AssertionError(f"after {late:.2f} s {error.kind} {error.ranks}: {error.text}")
    return late


class Adding:
    """An Adding is what one rank adds to the others' slots, and takes out of its own."""

    def __init__(self, rank: int, seed: int) -> None:
        import bluefog_pg

        self.chance, self.rank = random.Random(f"{seed} {rank}"), rank
        n = random.Random(seed).choice([1, 1000, 200_000])
        self.ones = torch.ones(n, dtype=torch.float64)
        self.window = bluefog_pg.Window(
            torch.zeros_like(self.ones), "w", zero_init=True, on_peer_failure="drop"
        )
        self.sent = dict.fromkeys(range(WORLD), 0)
        self.taken = dict.fromkeys(range(WORLD), 0)
        self.longest = 0.0

    def step(self) -> None:
        peer = self.chance.choice([r for r in range(WORLD) if r != self.rank])
        begun = time.monotonic()
        kind, excludes = self.chance.random(), self.chance.random() < 0.4
        if kind < 0.5:
            amount = self.chance.randrange(1, 100)
            self.window.accumulate(self.ones, dst_weights={peer: amount}, require_mutex=excludes)
            self.sent[peer] += amount
        elif kind < 0.9:
            self.take(peer, excludes)
        else:
            with self.window.mutex(for_self=excludes, ranks=[peer]):
                time.sleep(0.0005)
        self.longest = max(self.longest, time.monotonic() - begun)

    def take(self, peer: int, excludes: bool) -> None:
        one = {peer: 1.0}
        got = self.window.update(
            self_weight=0.0, neighbor_weights=one, reset=True, clone=True, require_mutex=excludes
        )
        assert got.eq(got[0]).all(), f"torn: {got.unique()[:5]}"
        self.taken[peer] += int(got[0])


def go_on_with_windows(rank: int, seed: int, limit: float) -> float:
    """Go on with windows beyond a death, and return how long the longest call has taken."""
    where, adding = inrank.directory(), Adding(rank, seed)
    dist.barrier()
    inrank.mark("up")
    until = float("inf")
    while time.monotonic() < until:
        error = inrank.catch(adding.step)
        if until == float("inf") and (where / "killed").exists():
            until = time.monotonic() + 0.1
        if error and not (error.kind == "PeerFailed" and (where / "killed").exists()):
            raise AssertionError(f"{error.kind}: {error.text}")
    victim, _ = killed()
    alive = [r for r in range(WORLD) if r != victim]
    (where / f"sent.{rank}").write_text(repr(adding.sent))
    inrank.mark("sent")
    for other in alive:
        inrank.await_file(f"at.sent.{other}")
    for other in set(alive) - {rank}:
        adding.take(other, excludes=True)
        sent = ast.literal_eval((where / f"sent.{other}").read_text())[rank]
        assert adding.taken[other] == sent, f"{other} sent {sent}, {adding.taken[other]} arrived"
    inrank.mark("took")
    for other in alive:
        inrank.await_file(f"at.took.{other}")
    assert adding.longest < limit, f"a call took {adding.longest:.2f} s"
    return adding.longest


def live(rank: int, seed: int, limit: float, body: Body) -> None:
    """Live one rank's part of a round. What is wrong goes into a file of its name."""
    inrank.init("store", rank, WORLD)
    dist.barrier()
    late = body(rank, seed, limit)
    (inrank.directory() / f"late.{rank}").write_text(str(late))
    victim, _ = killed()
    dist.destroy_process_group()
    meet_again(rank, victim)


def start(rank: int, seed: int, limit: float, body: Body, names: list[str]) -> int:
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    inrank.die_with(parent)
    os.environ["RANK"] = str(rank)
    if names:
        hosts.enter(names[rank])
    error = inrank.catch(live, rank, seed, limit, body)
    if error:
        (inrank.directory() / f"bad.{rank}").write_text(f"{error.kind}: {error.text}")
    os._exit(0)


def ended(pids: list[int], until: float) -> dict[int, int]:
    """Return the exit codes.

    Those that have not ended in time are killed, and show where they hang.
    """
    codes: dict[int, int] = {}
    while len(codes) < len(pids) and time.monotonic() < until:
        for pid in set(pids) - set(codes):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for pid in set(pids) - set(codes):
        print(f"{pid} hangs:\n{processes.stacks([pid])}", flush=True)
        os.kill(pid, signal.SIGKILL)
        codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return codes


def round_(seed: int, limit: float, body: Body, names: list[str]) -> tuple[float, list[str]]:
    """Return the seconds until the last survivor has heard, and what is wrong."""
    rng = random.Random(seed)
    where = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ["RANKS_DIR"] = str(where)
    pids = [start(rank, seed, limit, body, names) for rank in range(WORLD)]
    until = time.monotonic() + DEADLINE
    up = [where / f"at.up.{rank}" for rank in range(WORLD)]
    while time.monotonic() < until and not all(mark.exists() for mark in up):
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.5))
    victim = rng.randrange(WORLD)
    when = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    (where / "killed.new").write_text(f"{victim} {when}")
    (where / "killed.new").rename(where / "killed")
    codes = ended(pids, until)
    bad = [f"rank {p.name[4:]}: {p.read_text()}" for p in where.glob("bad.*")]
    bad += [
        f"rank {rank}: exit code {codes[pid]}"
        for rank, pid in enumerate(pids)
        if rank != victim and codes[pid]
    ]
    late = [float(p.read_text()) for p in where.glob("late.*")]
    if not bad and len(late) != WORLD - 1:
        bad.append("a survivor said nothing")
    shutil.rmtree(where)
    return max(late, default=0.0), bad


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill ranks at random instants.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=1.0, help="seconds until all have heard")
    parser.add_argument("--windows", action="store_true", help="instead of operations")
    parser.add_argument("--hosts", action="store_true", help="one for each rank: needs root")
    options = parser.parse_args()
    body = go_on_with_windows if options.windows else hear_of_it
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # torch renames functions that it calls itself.
    before = leftovers.files()
    slowest, faults = 0.0, 0
    with hosts.network(WORLD) if options.hosts else contextlib.nullcontext([]) as names:
        for seed in range(options.seed, options.seed + options.rounds):
            late, bad = round_(seed, options.limit, body, names)
            slowest, faults = max(slowest, late), faults + len(bad)
            for what in bad:
                print(f"round {seed}: {what}", flush=True)
    left, _ = leftovers.after(before, 0)
    print(f"{options.rounds} kills, slowest to hear {slowest:.2f} s, {faults} faults, left: {left}")
    return 1 if faults or left else 0


if __name__ == "__main__":
    sys.exit(main())
