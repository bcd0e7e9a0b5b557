"""One rank of the comparison: every peer lives in these same processes and takes turns."""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
import traceback
from datetime import timedelta
from typing import Any

import launch
import peers
import report
import torch
import torch.distributed as dist
from peers import Call, Case

SLICE, MOST_REPS = 0.02, 200  # seconds of calls in one turn


def make_peers(me: launch.Rank, gloo: dist.ProcessGroup, limit: timedelta) -> list[Any]:
    made: list[Any] = []
    for name in me.args["backends"]:
        if name == "bluefog":
            made.append(peers.BluefogPeer(name, None))
        elif name == "gloo":
            made.append(peers.GlooPeer(name, gloo))
        elif name == "mpi":
            made.append(peers.MpiPeer())
        elif name == "wire":
            made.append(peers.WirePeer(me.rank, me.n, me.args["hosts"], me.store))
        elif name == "fake":
            importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers it
            made.append(peers.FakePeer(name, dist.new_group(backend="fake", timeout=limit)))
        else:
            made.append(peers.MemcpyPeer())
    return made


def slowest(seconds: list[float], gloo: dist.ProcessGroup) -> list[float]:
    """The job is as slow as its slowest rank, in each turn."""
    times = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX, group=gloo)
    return times.tolist()


def turn(call: Call, reps: int, gloo: dist.ProcessGroup) -> float:
    dist.barrier(group=gloo)
    start = time.perf_counter()
    for _ in range(reps):
        call()
    return (time.perf_counter() - start) / reps


def time_peer_by_peer(
    calls: list[Call], rounds: int, gloo: dist.ProcessGroup
) -> tuple[list[int], list[list[float]]]:
    for call in calls:
        turn(call, 2, gloo)
    guesses = slowest([turn(call, 3, gloo) for call in calls], gloo)
    reps = [max(1, min(MOST_REPS, round(SLICE / guess))) for guess in guesses]
    times: list[list[float]] = [[] for _ in calls]
    for done in range(rounds):
        for k in range(len(calls)):
            at = (done + k) % len(calls)  # so that nobody always follows the same other one
            times[at].append(turn(calls[at], reps[at], gloo))
    return reps, [slowest(each, gloo) for each in times]


def run_case(case: Case, all_peers: list[Any], rounds: int, gloo: dist.ProcessGroup) -> list[Any]:
    bound = [(peer, peer.bind(case)) for peer in all_peers]
    bound = [(peer, call) for peer, call in bound if call is not None]
    wrong = [case.wrong(call) if peer.checked else None for peer, call in bound]
    counts = torch.tensor([w or 0 for w in wrong])
    dist.all_reduce(counts, group=gloo)
    reps, times = time_peer_by_peer([call for _, call in bound], rounds, gloo)
    rows = []
    for at, (peer, _) in enumerate(bound):
        seconds = statistics.median(times[at])
        algbw = case.size / seconds / 1e9
        bus = 1.0 if peer.name == "memcpy" else case.bus_factor()
        moves = peer.name != "fake"  # no bytes, no bandwidth
        rows.append(
            {
                "ranks": case.n,
                "op": case.op,
                "size": case.size,
                "count": case.size // 4,
                "type": "float32",
                "peer": peer.name,
                "time_us": seconds * 1e6,
                "algbw": algbw if moves else None,
                "busbw": algbw * bus if moves else None,
                "wrong": int(counts[at]) if peer.checked else None,
                "reps": reps[at],
                "rounds_us": [t * 1e6 for t in times[at]],
            }
        )
    return rows


def main() -> None:
    me = launch.join()
    args, limit = me.args, timedelta(seconds=60)
    default = "bluefog" if "bluefog" in args["backends"] else "gloo"
    dist.init_process_group(default, store=me.store, rank=me.rank, world_size=me.n, timeout=limit)
    gloo = dist.new_group(backend="gloo", timeout=limit)
    all_peers = make_peers(me, gloo, limit)
    rows: list[Any] = []
    for op in args["ops"]:
        if me.rank == 0:
            print(report.heading(op, me.n), flush=True)
        for size in args["sizes"]:
            found = run_case(Case(op, me.rank, me.n, size), all_peers, args["rounds"], gloo)
            if me.rank == 0:
                print("\n".join(map(report.line, found)), flush=True)
            rows += found
    me.give_back(rows)
    dist.barrier(group=gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        # At once: MPI_Finalize at exit would wait for ranks that wait for this one.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
