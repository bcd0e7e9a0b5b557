"""Rank 1 kills itself in the first life of the job, and the others wait to be started anew.

torchrun --nnodes 2 --nproc-per-node 2 --max-restarts 3 ... restarted.py FOLDER
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import bluefog_pg


def main(killed: Path) -> None:
    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.ones(100)
    dist.all_reduce(x)
    assert x[0] == world
    if rank == 1 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.barrier()
    except bluefog_pg.PeerFailed:
        time.sleep(60)  # The agent of a rank that fails would count a restart, too.
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    sys.stdout.write(f"rank {rank} of {world} is done after {restarts} restarts\n")
    dist.destroy_process_group()


main(Path(sys.argv[1]) / "killed")
