"""Train a small conv net on handwritten digits, one shard of them per rank.

    torchrun --standalone --nproc-per-node 4 examples/train_digits.py --mode ddp
    torchrun --standalone --nproc-per-node 4 examples/train_digits.py --mode neighbor_allreduce

ddp                 stock DistributedDataParallel: every step averages the gradients of all ranks.
neighbor_allreduce  every rank takes its own step, and averages its parameters with its neighbors.
The other modes are also communications of bluefog_pg.DistributedOptimizer.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from devices import own_device
from digits import Point, accuracy, batches, load_data, make_net, plot
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import bluefog_pg  # backend="bluefog" alone needs no import, but DistributedOptimizer does.

MEASURE_EVERY = 5
MODES = "ddp neighbor_allreduce hierarchical_neighbor_allreduce allreduce gradient_allreduce"
MODES += " win_put win_get push_sum empty"


def make_optimizer(net: nn.Module, args: argparse.Namespace) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    if args.mode == "ddp":
        return optimizer
    if args.mode == "hierarchical_neighbor_allreduce":
        machines = bluefog_pg.machine_size()
        bluefog_pg.set_machine_topology(bluefog_pg.topology_util.RingGraph(machines))
    options = {"order": args.order, "topology": args.topology, "compression": args.compression}
    return bluefog_pg.DistributedOptimizer(optimizer, net, args.mode, **options)


def measure(net: nn.Module, loss: Tensor, group: dist.ProcessGroup) -> tuple[float, float]:
    """Return the mean loss and the consensus distance, sqrt(mean over ranks of |x_i - mean|^2)."""
    total = loss.detach().clone()
    dist.all_reduce(total, dist.ReduceOp.SUM, group=group)
    mean = total.item() / dist.get_world_size(group)
    if dist.get_backend(group) != "bluefog":
        return mean, 0.0
    return mean, bluefog_pg.optim.consensus_distance(net, group)


def train(
    net: nn.Module, images: Tensor, labels: Tensor, args: argparse.Namespace
) -> tuple[list[Point], float]:
    """Train, and return the points of the plot and this rank's samples per second."""
    measuring = dist.new_group()  # Its bytes must not count as the training's.
    optimizer = make_optimizer(net, args)
    points, seconds = list[Point](), 0.0
    for step, batch in enumerate(batches(len(labels), args.epochs, args.seed, args.mode), start=1):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        seconds += time.perf_counter() - start
        if step % MEASURE_EVERY == 1:
            points.append((step, *measure(net, loss, measuring)))
    if isinstance(optimizer, bluefog_pg.DistributedOptimizer):
        optimizer.close()
    return points, args.epochs * len(labels) / seconds


def report(table: Tensor, points: list[Point], args: argparse.Namespace) -> None:
    title = f"digits, {args.mode} on {args.backend}, {len(table)} rank{'s' * (len(table) > 1)}"
    path = args.out / f"train_digits_{args.mode}.png"
    plot(points, title, path)
    print(f"\n{title}")
    print(f"{'rank':>4}  {'test accuracy':>13}  {'samples/s':>9}  {'bytes sent':>12}")
    for rank, (right, speed, sent) in enumerate(table.tolist()):
        count = "-" if sent < 0 else f"{sent:,.0f}"
        print(f"{rank:>4}  {right:>13.2%}  {speed:>9.0f}  {count:>12}")
    print(f"consensus distance {points[-1][2]:.3g}\nplot: {path}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits.")
    parser.add_argument("--mode", choices=MODES.split(), default="ddp")
    parser.add_argument("--order", choices=("awc", "atc"), default="awc")
    parser.add_argument("--topology", choices=("exp2", "one-peer-exp2", "ring", "full"))
    parser.add_argument("--compression", choices=("fp16", "bf16", "int8"))
    parser.add_argument("--backend", default="bluefog")
    parser.add_argument("--device", type=own_device, default="cpu", help="cuda: of GPUs")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build"), help="the plot's folder")
    parser.add_argument("--require-accuracy", type=float, default=0.0, metavar="0.95")
    args = parser.parse_args()

    dist.init_process_group(args.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = load_data(rank, world, args.seed, args.device)
    torch.manual_seed(args.seed)  # gives all ranks the same first parameters
    net: nn.Module = make_net().to(args.device)
    net = DistributedDataParallel(net) if args.mode == "ddp" else net
    points, speed = train(net, images, labels, args)

    is_counted = args.backend == "bluefog" and not args.mode.startswith("win")
    sent = bluefog_pg.stats()["bytes_sent"] if is_counted else -1
    right = accuracy(net, test_images, test_labels)
    row = torch.tensor([right, speed, sent], dtype=torch.float64, device=args.device)
    table = [torch.empty_like(row) for _ in range(world)]
    dist.all_gather(table, row)
    if rank == 0:
        report(torch.stack(table), points, args)
    dist.destroy_process_group()
    if right < args.require_accuracy:
        sys.exit(f"rank {rank}: test accuracy {right:.2%} is below {args.require_accuracy:.2%}")


if __name__ == "__main__":
    main()
