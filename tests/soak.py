"""Kills at random instants, crossed with every operation: no hang, no leak, no wrong result.

    python tests/soak.py --rounds 1000

In each round four ranks call random operations, each followed by an all_reduce whose result is
checked; one of them is killed. The others have to raise PeerFailed that names it, leave the group,
meet in a new one, and average there. Ranks are forked from a process that has imported torch: a
round takes a second.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist

import harness
import inrank
from needing import OPERATIONS

WORLD = 4
DEADLINE = 30.0  # seconds until a round hangs


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


def live(rank: int, seed: int, limit: float) -> None:
    """One rank's part of a round: what is wrong goes into a file of its name."""
    where = inrank.directory()
    inrank.init("store", rank, WORLD)
    dist.barrier()
    inrank.mark("up")
    error = operate_until_it_fails(rank, seed)
    inrank.await_file("killed")
    victim, killed = (where / "killed").read_text().split()
    late = error.ended - float(killed)
    if error.kind != "PeerFailed" or int(victim) not in (error.ranks or ()) or late > limit:
        raise AssertionError(f"after {late:.2f} s {error.kind} {error.ranks}: {error.text}")
    (where / f"late.{rank}").write_text(str(late))
    dist.destroy_process_group()
    meet_again(rank, int(victim))


def start(rank: int, seed: int, limit: float) -> int:
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    inrank.die_with(parent)
    os.environ["RANK"] = str(rank)
    error = inrank.catch(live, rank, seed, limit)
    if error:
        (inrank.directory() / f"bad.{rank}").write_text(f"{error.kind}: {error.text}")
    os._exit(0)


def ended(pids: list[int], until: float) -> dict[int, int]:
    """How each has ended; those that have not when the time is over are killed, and show where."""
    codes: dict[int, int] = {}
    while len(codes) < len(pids) and time.monotonic() < until:
        for pid in set(pids) - set(codes):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for pid in set(pids) - set(codes):
        print(f"{pid} hangs:\n{harness.stacks([pid])}", flush=True)
        os.kill(pid, signal.SIGKILL)
        codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return codes


def round_(seed: int, limit: float) -> tuple[float, list[str]]:
    """Until the last survivor has heard; and what is wrong."""
    rng = random.Random(seed)
    where = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ["RANKS_DIR"] = str(where)
    pids = [start(rank, seed, limit) for rank in range(WORLD)]
    until = time.monotonic() + DEADLINE
    up = [where / f"at.up.{rank}" for rank in range(WORLD)]
    while time.monotonic() < until and not all(mark.exists() for mark in up):
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.5))
    victim = rng.randrange(WORLD)
    killed = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    (where / "killed.new").write_text(f"{victim} {killed}")
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
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # torch renames what it calls
    before = set(os.listdir("/dev/shm"))
    slowest, faults = 0.0, 0
    for seed in range(options.seed, options.seed + options.rounds):
        late, bad = round_(seed, options.limit)
        slowest, faults = max(slowest, late), faults + len(bad)
        for what in bad:
            print(f"round {seed}: {what}", flush=True)
    left = sorted(set(os.listdir("/dev/shm")) - before)
    print(f"{options.rounds} kills, slowest to hear {slowest:.2f} s, {faults} faults, left: {left}")
    return 1 if faults or left else 0


if __name__ == "__main__":
    sys.exit(main())
