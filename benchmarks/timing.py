"""This program is one rank of the comparison: every peer lives in its process, and takes turns."""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import traceback
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import figures
import launch
import peers
import raw_mpi
import torch
import torch.distributed as dist

from bluefog_pg.tools.bench.cases import Case
from bluefog_pg.tools.bench.turns import Plan, time_peer_by_peer

LIMIT = timedelta(seconds=60)


def make_peers(me: launch.Rank, backends: list[str], gloo: dist.ProcessGroup) -> list[Any]:
    def fake() -> peers.FakePeer:
        # The import registers the backend.
        importlib.import_module("torch.testing._internal.distributed.fake_pg")
        return peers.FakePeer("fake", dist.new_group(backend="fake", timeout=LIMIT))

    makers: dict[str, Callable[[], Any]] = {
        "bluefog": lambda: peers.BluefogPeer("bluefog", None),
        "list": lambda: peers.ListPeer("list", None),
        "gloo": lambda: peers.MessagesPeer("gloo", gloo),
        "nccl": lambda: peers.BatchPeer("nccl", dist.new_group(backend="nccl", timeout=LIMIT)),
        "mpi": peers.MpiPeer,
        "raw_mpi": lambda: raw_mpi.RawMpiPeer(me.args["raw_mpi"]),
        "wire": lambda: peers.WirePeer(me.rank, me.n, me.args["hosts"], me.store),
        "fake": fake,
        "memcpy": peers.MemcpyPeer,
        "torch.add": peers.AddPeer,
    }
    return [makers[name]() for name in backends]


def row_of(case: Case, peer: Any, times: list[float], wrong: int) -> dict[str, Any]:
    seconds = statistics.median(times)
    algbw = case.size / seconds / 1e9
    bus = 1.0 if peer.name == "memcpy" else case.bus_factor()
    moves = peer.name not in ("fake", "torch.add")  # A peer that moves no bytes has no bandwidth.
    return {
        "ranks": case.n,
        "op": case.op,
        "size": case.size,
        "count": case.size // 4,
        "type": "float32",
        "peer": peer.name,
        "time_us": seconds * 1e6,
        "algbw": algbw if moves else None,
        "busbw": algbw * bus if moves else None,
        "wrong": wrong if peer.checked else None,
        "rounds_us": [t * 1e6 for t in times],
    }


def run_case(case: Case, all_peers: list[Any], plan: Plan, gloo: dist.ProcessGroup) -> list[Any]:
    bound = [(peer, peer.bind(case)) for peer in all_peers]
    bound = [(peer, call) for peer, call in bound if call is not None]
    wrong = [case.wrong(call) if peer.checked else 0 for peer, call in bound]
    counts = torch.tensor(wrong)
    dist.all_reduce(counts, group=gloo)
    reps, times = time_peer_by_peer([call for _, call in bound], plan, gloo)
    return [
        row_of(case, peer, times[at], int(counts[at])) | {"reps": reps[at]}
        for at, (peer, _) in enumerate(bound)
    ]


def run_cases(
    me: launch.Rank,
    gloo: dist.ProcessGroup,
    cases: Iterable[Case],
    backends: list[str],
    plan: Plan,
) -> list[Any]:
    """Return the rows of all cases, which rank 0 prints as they come."""
    all_peers = make_peers(me, backends, gloo)
    rows: list[Any] = []
    for case in cases:
        found = run_case(case, all_peers, plan, gloo)
        if me.rank == 0:
            starts = not rows or rows[-1]["op"] != case.op
            said = [figures.heading(case.op, me.n)] if starts else []
            print("\n".join([*said, *map(figures.line, found)]), flush=True)
        rows += found
    return rows


def start(me: launch.Rank, backends: list[str]) -> dist.ProcessGroup:
    """Make the default group and one of gloo's, and return that, which keeps the turns in step."""
    default = "bluefog" if "bluefog" in backends else "gloo"
    dist.init_process_group(default, store=me.store, rank=me.rank, world_size=me.n, timeout=LIMIT)
    return dist.new_group(backend="gloo", timeout=LIMIT)


def run_rank(main: Callable[[], None]) -> None:
    try:
        main()
    except BaseException:
        # The process ends at once. MPI_Finalize at exit would wait for ranks that wait for this
        # one.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main() -> None:
    me = launch.join()
    args, device = me.args, me.device()
    gloo = start(me, args["backends"])
    cases = (Case(op, me.rank, me.n, size, device) for op in args["ops"] for size in args["sizes"])
    me.give_back(run_cases(me, gloo, cases, args["backends"], Plan(args["rounds"])))
    dist.barrier(group=gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    run_rank(main)
