"""Compare how long an asynchronous average with neighbors on an accelerator keeps its host.

The other call is torch's batch_isend_irecv of the same messages, and one kernel that writes the
result into new memory. The device comes to its end between two calls, so that only the host's time
is compared.

python benchmarks/host_time.py                   on the simulated accelerator of the tests
python benchmarks/host_time.py --device cuda     on a GPU, shared where there are fewer than ranks
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import device_report
import launch
import places
import torch
import torch.distributed as dist

from tests.support import simulated
from tests.support.environment import simulated_accelerator

COUNTS = (1, 1000, 100_000)


def calls_of(kind: str, x: torch.Tensor, near: list[int]) -> dict[str, Callable[[], Any]]:
    """Return the calls to time. Each returns what must live until the device has come there."""
    import bluefog_pg

    def by_messages() -> Any:
        out, got = torch.empty_like(x), [torch.empty_like(x) for _ in near]
        ops = [dist.P2POp(dist.isend, x, rank) for rank in near]
        ops += [dist.P2POp(dist.irecv, each, rank) for each, rank in zip(got, near, strict=True)]
        works = dist.batch_isend_irecv(ops)
        for work in works:
            work.wait()
        if kind == "cuda":
            torch.add(x, got[0], out=out)
        else:
            simulated.load().copy(out, got[0], 0)  # ATen's copy would wait there.
        return works, out, got

    def by_bluefog() -> Any:
        work = bluefog_pg.neighbor_allreduce(x, async_op=True)
        work.wait()
        return work

    return {"bluefog": by_bluefog, "batch_isend_irecv": by_messages}


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    kept = call()
    took = time.perf_counter() - start
    torch.accelerator.synchronize()
    del kept
    return took


def measure(me: launch.Rank) -> list[dict[str, Any]]:
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(me.n, connect_style=0))
    near = bluefog_pg.in_neighbor_ranks()
    rows = []
    for count in COUNTS:
        x = torch.ones(count, device=me.args["device"])
        calls = calls_of(me.args["device"], x, near)
        found: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(me.args["turns"] + 20):
            for name, call in calls.items():
                dist.barrier()
                took = seconds_of(call)
                if turn >= 20:
                    found[name].append(took)
        medians = {name: statistics.median(times) for name, times in found.items()}
        ratio = medians["bluefog"] / medians["batch_isend_irecv"]
        rows.append({"bytes": x.nbytes, "ranks": me.n, "seconds": medians, "ratio": ratio})
    return rows


def run_rank() -> None:
    me = launch.join()
    kind = me.args["device"]
    if kind == "simulated":
        simulated.load()
    else:
        me.device()
    dist.init_process_group(
        f"cpu:bluefog,{kind}:bluefog", store=me.store, rank=me.rank, world_size=me.n
    )
    me.give_back(measure(me))
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["simulated", "cuda"], default="simulated")
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out or places.place_of("host_time", args, parser)
    if args.device == "simulated":
        os.environ["BLUEFOG_ACCELERATOR"] = simulated_accelerator()
    rows = []
    for ranks in (2, 4):
        plan = {"device": args.device, "turns": args.turns}
        rows += launch.run_ranks("host_time.py", ranks, plan, 300)
    device_report.HOST_TIME.write(rows, out)


if __name__ == "__main__":
    run_rank() if "BENCH_STORE" in os.environ else main()
