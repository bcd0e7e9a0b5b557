"""Train on digits while one rank is slow, and nobody waits for it.

    torchrun --standalone --nproc-per-node 4 examples/async_training.py
    torchrun --standalone --nproc-per-node 4 examples/async_training.py --mode all_reduce

win_put     every rank takes its own steps, puts its parameters into its out-neighbors' slots, and
            averages with what its in-neighbors have left in its own.
all_reduce  every step averages the gradients of all ranks: all go at the pace of the slowest.
"""

import argparse
import sys
import time

import torch
import torch.distributed as dist
from devices import own_device
from digits import BATCH, accuracy, load_data, make_net
from torch import Tensor, nn

import bluefog_pg


def step(net: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    batch = torch.randint(len(labels), (BATCH,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


def train(net: nn.Module, images: Tensor, labels: Tensor, args: argparse.Namespace) -> float:
    """Train, and return this rank's steps per second; all ranks end with the mean of parameters."""
    nap = args.nap * (args.factor if dist.get_rank() == dist.get_world_size() - 1 else 1)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    asynchronous = args.mode == "win_put"
    if asynchronous:
        optimizer = bluefog_pg.DistributedOptimizer(optimizer, net, "win_put")
    dist.barrier()
    begun, steps = time.perf_counter(), 0
    # All ranks must make the same number of steps if they meet in collectives. If they use windows,
    # each rank goes on until the time is over.
    count = round(args.seconds / (args.nap * args.factor))
    while time.perf_counter() - begun < args.seconds if asynchronous else steps < count:
        step(net, optimizer, images, labels)
        time.sleep(nap)
        steps += 1
    rate = steps / (time.perf_counter() - begun)
    if isinstance(optimizer, bluefog_pg.DistributedOptimizer):
        optimizer.close()
        bluefog_pg.allreduce_parameters(net.parameters())
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits; the last rank is slow.")
    parser.add_argument("--mode", choices=("win_put", "all_reduce"), default="win_put")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--nap", type=float, default=0.01, help="of each step, in seconds")
    parser.add_argument("--factor", type=float, default=5.0, help="by which the last rank is slow")
    parser.add_argument("--device", type=own_device, default="cpu", help="cuda: of GPUs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--require-accuracy", type=float, default=0.0, metavar="0.9")
    args = parser.parse_args()

    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = load_data(rank, world, args.seed, args.device)
    torch.manual_seed(args.seed)  # gives all ranks the same first parameters
    net: nn.Module = make_net().to(args.device)
    if args.mode == "all_reduce":
        net = nn.parallel.DistributedDataParallel(net)
    bluefog_pg.set_topology(bluefog_pg.topology_util.ExponentialTwoGraph(world))
    torch.manual_seed(args.seed + rank)
    rate = train(net, images, labels, args)
    right = accuracy(net, test_images, test_labels)
    print(f"rank {rank}: {rate:.1f} steps/s, test accuracy {right:.2%}", flush=True)
    dist.destroy_process_group()
    if right < args.require_accuracy:
        sys.exit(f"rank {rank}: test accuracy {right:.2%} is below {args.require_accuracy:.2%}")


if __name__ == "__main__":
    main()
