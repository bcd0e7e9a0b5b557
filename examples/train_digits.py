"""Train a small conv net on scikit-learn's 1,797 handwritten digits, one shard of them per rank.

    torchrun --standalone --nproc-per-node 4 examples/train_digits.py --mode ddp
    torchrun --standalone --nproc-per-node 4 examples/train_digits.py --mode neighbor

ddp       stock DistributedDataParallel: every step averages the gradients of all ranks.
neighbor  every rank takes its own step, then averages its parameters with its neighbours only.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from tqdm import tqdm

import bluefog_pg  # for neighbor_allreduce and stats; backend="bluefog" alone needs no import

BATCH, HELD_OUT, MEASURE_EVERY = 16, 360, 5
Point = tuple[int, float, float]  # step, loss, consensus distance


def make_net() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 8 x 8 -> 4 x 4
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 4 x 4 -> 2 x 2
        *(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def load_data(rank: int, world: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """This rank's own training images and labels, and the test set that all ranks share."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    share = len(train) // world  # equal shards: every rank takes the same number of steps
    if share == 0:
        raise ValueError(f"{world} ranks, but only {len(train)} training images")
    mine = train[rank * share : (rank + 1) * share]
    return images[mine], labels[mine], images[test], labels[test]


def batches(count: int, args: argparse.Namespace) -> Iterator[Tensor]:
    """The indices of each batch, shuffled every epoch; a progress bar on rank 0."""
    rank = dist.get_rank()
    shuffle = torch.Generator().manual_seed(args.seed + rank)
    steps = args.epochs * -(-count // BATCH)
    redraw = 0.1 if sys.stderr.isatty() else float("inf")  # in a log: the first and the last state
    with tqdm(desc=args.mode, total=steps, ncols=88, mininterval=redraw, disable=rank > 0) as bar:
        for _ in range(args.epochs):
            for batch in torch.randperm(count, generator=shuffle).split(BATCH):
                yield batch
                bar.update()


def average_with_neighbors(net: nn.Module) -> None:
    with torch.no_grad():
        mine = parameters_to_vector(net.parameters())
        vector_to_parameters(bluefog_pg.neighbor_allreduce(mine), net.parameters())


def measure(net: nn.Module, loss: Tensor, group: dist.ProcessGroup) -> tuple[float, float]:
    """Mean loss and consensus distance, sqrt(mean over ranks of ||x_i - mean||^2)."""
    world = dist.get_world_size(group)
    mine = parameters_to_vector(net.parameters()).detach().double()
    mean = mine.clone()
    dist.all_reduce(mean, group=group)
    totals = torch.stack([loss.detach().double(), (mine - mean / world).square().sum()])
    dist.all_reduce(totals, group=group)
    return totals[0].item() / world, (totals[1].item() / world) ** 0.5


def train(
    net: nn.Module, images: Tensor, labels: Tensor, args: argparse.Namespace
) -> tuple[list[Point], float]:
    """The points of the plot, and this rank's samples per second."""
    measuring = dist.new_group()  # a group of its own: what it sends is not the training's
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    points: list[Point] = []
    seconds = 0.0
    for step, batch in enumerate(batches(len(labels), args), start=1):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        if args.mode == "neighbor":
            average_with_neighbors(net)
        seconds += time.perf_counter() - start
        if step % MEASURE_EVERY == 1:
            points.append((step, *measure(net, loss, measuring)))
    return points, args.epochs * len(labels) / seconds


def plot(points: list[Point], title: str, path: Path) -> None:
    steps, loss, distance = zip(*points, strict=True)
    figure = Figure(figsize=(7, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(steps, loss)
    above.set(title=title, ylabel="training loss, mean over ranks", yscale="log")
    below.plot(steps, distance, color="tab:orange")
    # under ddp the distance is 0, which a log scale cannot show
    scale = "log" if max(distance) > 0 else "linear"
    below.set(xlabel="step", ylabel="consensus distance", yscale=scale)
    for axes in (above, below):
        axes.grid(which="both", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def report(table: Tensor, points: list[Point], args: argparse.Namespace) -> None:
    title = f"digits, {args.mode} on {args.backend}, {len(table)} rank{'s' * (len(table) > 1)}"
    path = args.out / f"train_digits_{args.mode}.png"
    plot(points, title, path)
    print(f"\n{title}")
    print(f"{'rank':>4}  {'test accuracy':>13}  {'samples/s':>9}  {'bytes sent':>12}")
    for rank, (accuracy, speed, sent) in enumerate(table.tolist()):
        count = "-" if sent < 0 else f"{sent:,.0f}"
        print(f"{rank:>4}  {accuracy:>13.2%}  {speed:>9.0f}  {count:>12}")
    print(f"consensus distance {points[-1][2]:.3g}\nplot: {path}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits.")
    parser.add_argument("--mode", choices=("ddp", "neighbor"), default="ddp")
    parser.add_argument("--backend", default="bluefog")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the plot")
    parser.add_argument("--require-accuracy", type=float, default=0.0, metavar="0.95")
    args = parser.parse_args()

    dist.init_process_group(args.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = load_data(rank, world, args.seed)
    torch.manual_seed(args.seed)  # the same first parameters everywhere
    net: nn.Module = make_net()
    if args.mode == "ddp":
        net = DistributedDataParallel(net)
    else:
        bluefog_pg.set_topology(bluefog_pg.topology_util.ExponentialTwoGraph(world))
    points, speed = train(net, images, labels, args)

    sent = bluefog_pg.stats()["bytes_sent"] if args.backend == "bluefog" else -1
    with torch.no_grad():
        accuracy = (net(test_images).argmax(1) == test_labels).double().mean().item()
    row = torch.tensor([accuracy, speed, sent], dtype=torch.float64)
    table = [torch.empty_like(row) for _ in range(world)]
    dist.all_gather(table, row)
    if rank == 0:
        report(torch.stack(table), points, args)
    dist.destroy_process_group()
    if accuracy < args.require_accuracy:
        sys.exit(f"rank {rank}: test accuracy {accuracy:.2%} is below {args.require_accuracy:.2%}")


if __name__ == "__main__":
    main()
