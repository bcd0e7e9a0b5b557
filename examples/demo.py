"""Show in a minute what bluefog_pg is for: `make demo`.

    bfrun -np 4 --keep-going examples/demo.py --out build/demo

Four ranks train a small net on handwritten digits six times: with DDP on gloo and on bluefog, by
averaging with one other rank in each step, beside a rank that is five times slower, and beside one
that is killed. After each training every rank writes what it saw to its file, so the killed rank's
file has one training less. Rank 0 prints the table.
"""

import argparse
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from demo_table import Seen, leave, report
from digits import BATCH, accuracy, load_data, make_net
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import bluefog_pg


@dataclass
class Run:
    """A Run is one training: how the ranks communicate, and what the last rank does."""

    title: str
    backend: str = "bluefog"
    communication: str = ""  # of DistributedOptimizer; nothing for DDP
    last_rank: str = ""  # "slow", or "killed" halfway
    seconds: float = 0.0
    megabytes: float = 0.0
    accuracy: float = 0.0
    losses: list[tuple[float, float]] = field(default_factory=list)  # with the seconds


RUNS = [
    Run("DDP on gloo", backend="gloo"),
    Run("DDP on bluefog"),
    Run("one-peer averaging", communication="neighbor_allreduce"),
    Run("DDP, a rank 5 x slower", last_rank="slow"),
    Run("win_put, a rank 5 x slower", communication="win_put", last_rank="slow"),
    Run("win_put, a rank killed", communication="win_put", last_rank="killed"),
]


def bytes_sent(group: dist.ProcessGroup) -> int:
    """Return the bytes that this rank has sent in the group, in messages and into windows."""
    windows = bluefog_pg.window_stats(group).values()
    puts = sum(to["bytes"] for window in windows for to in window["to"].values())
    return int(bluefog_pg.stats(group)["bytes_sent"] + puts)


def train(run: Run, steps: int, pace: float, images: Tensor, labels: Tensor) -> nn.Module:
    """Train a new net. The seconds of a step, `pace`, tell how long a slow rank sleeps."""
    torch.manual_seed(0)  # gives all ranks the same first parameters
    net: nn.Module = make_net()
    torch.manual_seed(dist.get_rank())
    is_last = dist.get_rank() == dist.get_world_size() - 1
    nap = 4 * pace if is_last and run.last_rank == "slow" else 0.0
    group = dist.new_group(backend=run.backend)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    if run.communication:
        bluefog_pg.DistributedOptimizer(
            optimizer, net, run.communication, group=group, topology="one-peer-exp2"
        )
    else:
        net = DistributedDataParallel(net, process_group=group)
    dist.barrier()
    begun = time.perf_counter()
    for step in range(steps):
        if is_last and run.last_rank == "killed" and step == steps // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = torch.randint(len(labels), (BATCH,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        time.sleep(nap)
        run.losses.append((time.perf_counter() - begun, loss.item()))
    run.seconds = time.perf_counter() - begun
    if run.backend == "bluefog":
        run.megabytes = bytes_sent(group) / 1e6
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description="Show what bluefog_pg is for.")
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    file, seen = args.out / f"rank{rank}.json", list[Seen]()
    file.unlink(missing_ok=True)
    images, labels, test_images, test_labels = load_data(rank, world, 0)
    for run in RUNS:
        if rank == 0 and run.last_rank == "killed":
            print("Now the last rank is killed on purpose.", flush=True)
        net = train(run, args.steps, RUNS[1].seconds / args.steps, images, labels)
        run.accuracy = accuracy(net, test_images, test_labels)
        seen.append(asdict(run))
        leave(file, seen)
        if rank == 0:
            print(f"{run.title}: {run.seconds:.1f} s", flush=True)
    if rank == 0:
        report(args.out, world, len(RUNS))


if __name__ == "__main__":
    main()
