"""This program trains with a checkpoint after every step. In round 1, rank 1 is killed in step 7.

torchrun --standalone --nproc-per-node 3 --max-restarts 2 elastic.py CHECKPOINT
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.support import stack

STEPS, KILLED_IN = 12, 7


def train(checkpoint: Path | None, doomed: bool) -> tuple[int, list[float]]:
    """Train, and return the step in which it began, and this rank's losses from there on."""
    net = DistributedDataParallel(stack.mlp())
    optimizer = stack.momentum(net)
    first, losses = 0, []
    if checkpoint and checkpoint.exists():
        state = torch.load(checkpoint)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    for step in range(first, STEPS):
        optimizer.zero_grad()
        x, y = stack.share(step, dist.get_rank(), dist.get_world_size())
        loss = nn.functional.mse_loss(net(x), y)
        if doomed and step == KILLED_IN:
            sys.stdout.write(f"rank {dist.get_rank()} is killed\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if checkpoint and dist.get_rank() == 0:
            parts = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(parts, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
        dist.barrier()
    return first, losses


def main(checkpoint: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("bluefog")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    before = stack.operations()
    first, losses = train(Path(checkpoint), doomed=attempt == 0 and rank == 1)
    operations = stack.operations() - before
    _, without_fault = train(None, doomed=False)
    same = losses == without_fault[first:]
    sys.stdout.write(
        f"round {attempt} rank {rank} began at {first} same {same} loss {losses[-1]} "
        f"operations {operations}\n"
    )
    dist.destroy_process_group()


main(sys.argv[1])
