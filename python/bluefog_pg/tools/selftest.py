"""Run one of the doctor's two ranks: `python -m bluefog_pg.tools.selftest STORE_FILE RANK`."""

from __future__ import annotations

import sys
from datetime import timedelta


def main(file: str, rank: int) -> None:
    import torch
    import torch.distributed as dist

    from bluefog_pg.neighbors import neighbor_allreduce

    limit = timedelta(seconds=30)
    dist.init_process_group(
        "bluefog", init_method=f"file://{file}", rank=rank, world_size=2, timeout=limit
    )
    x = torch.full((100_000,), float(rank), device="cpu")
    average = neighbor_allreduce(x)
    dist.all_reduce(x)
    if not ((average == 0.5).all() and (x == 1).all()):
        raise SystemExit(f"rank {rank} of 2 got wrong sums")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
