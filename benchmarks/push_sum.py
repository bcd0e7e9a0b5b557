"""Measure how near asynchronous push-sum, BlueFog's first example, comes to the mean in 100 steps.

torchrun --standalone --nproc-per-node 4 benchmarks/push_sum.py --runs 200
"""

from __future__ import annotations

import argparse
import math
import random
import time

import torch
import torch.distributed as dist

import bluefog_pg.torch as bf

STEPS = 100


def push_sum() -> float:
    """Return this rank's estimate of the mean. Ranks begin up to 20 ms after each other."""
    out = bf.out_neighbor_ranks()
    share = 1.0 / (len(out) + 1)
    x = torch.tensor([float(bf.rank()), 1.0])
    bf.win_create(x, name="x", zero_init=True)
    time.sleep(random.random() * 0.02)
    for _ in range(STEPS):
        bf.win_accumulate(x, name="x", dst_weights=dict.fromkeys(out, share), require_mutex=True)
        x.mul_(share)
        bf.win_sync_then_collect(name="x")
    bf.barrier()
    bf.win_sync_then_collect(name="x")
    bf.win_free("x")
    return float(x[0] / x[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    args = parser.parse_args()
    bf.init()
    mean = (bf.size() - 1) / 2
    worst, wrong, took = 0.0, 0, []
    for _ in range(args.runs):
        begun = time.monotonic()
        errors = torch.tensor([abs(push_sum() - mean)]).nan_to_num(math.inf)
        took.append(time.monotonic() - begun)
        dist.all_reduce(errors, dist.ReduceOp.MAX)
        worst = max(worst, errors.item())
        wrong += errors.item() > 1e-3
    if bf.rank() == 0:
        median = sorted(took)[len(took) // 2]
        print(
            f"{bf.size()} ranks: {wrong} of {args.runs} runs off by more than 1e-3; worst "
            f"{worst:.1e}; median {median * 1e3:.0f} ms"
        )
    bf.shutdown()


if __name__ == "__main__":
    main()
