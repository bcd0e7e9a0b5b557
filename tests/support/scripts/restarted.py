"""Ranks that a file `kill-RANK` names kill themselves, one in each life of the job.

torchrun --nnodes 2 --nproc-per-node 2 --max-restarts 3 ... restarted.py FOLDER
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def main(folder: Path) -> None:
    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    doomed = min(folder.glob("kill-*"), default=None)
    for _ in range(10):
        x = torch.ones(100)
        dist.all_reduce(x)
        assert x[0] == world
    if doomed is not None and doomed.name == f"kill-{rank}":
        doomed.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    sys.stdout.write(f"rank {rank} of {world} is done after {restarts} restarts\n")
    dist.destroy_process_group()


main(Path(sys.argv[1]))
