"""This program is one rank of neighbors.py: it averages a tensor and a list, and counts bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import launch
import timing
import torch.distributed as dist
import touched

from bluefog_pg.tools.bench import turns
from bluefog_pg.tools.bench.cases import Case

FUSED_SIZE = 100 * 10_240  # bytes of a hundred tensors of 10 KiB
FUSED_OPS = ("neighbor_ring", "neighbor_exp2")


def main() -> None:
    me = launch.join()
    args, ops = me.args, me.args["ops"]
    plan, device = turns.Plan(**args["plan"]), me.device()
    gloo = timing.start(me, args["backends"])

    def of(ops: list[str], sizes: list[int]) -> Iterator[Case]:
        return (Case(op, me.rank, me.n, size, device) for op in ops for size in sizes)

    rows = timing.run_cases(me, gloo, of(ops, args["sizes"]), args["backends"], plan)
    found: dict[str, Any] = {"rows": rows, "fused": [], "touched": []}
    if "bluefog" in args["backends"]:
        fused = of([op for op in FUSED_OPS if op in ops], [FUSED_SIZE])
        found["fused"] = timing.run_cases(me, gloo, fused, ["bluefog", "list"], plan)
    if "bluefog" in args["backends"] and device.type == "cpu":  # Bytes are counted on CPUs only.
        found["touched"] = [touched.count(me, op, gloo) for op in ops]
    me.give_back(found)
    dist.barrier(group=gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    timing.run_rank(main)
