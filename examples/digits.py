"""This module has what examples train: a small conv net on scikit-learn's 1,797 digits.

It also draws the plot of a training.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

BATCH, HELD_OUT = 16, 360
CPU = torch.device("cpu")
Point = tuple[int, float, float]  # the step, the loss, and the consensus distance


def make_net() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 8 x 8 -> 4 x 4
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 4 x 4 -> 2 x 2
        *(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def load_data(
    rank: int, world: int, seed: int, device: torch.device = CPU
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return this rank's own training images and labels, and the test set that all ranks share."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32, device=device).unsqueeze(1) / 16
    labels = torch.tensor(digits.target, device=device)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    share = len(train) // world  # Shards are equal, so that all ranks make as many steps.
    if share == 0:
        raise ValueError(f"{world} ranks, but only {len(train)} training images")
    mine = train[rank * share : (rank + 1) * share]
    return images[mine], labels[mine], images[test], labels[test]


def batches(count: int, epochs: int, seed: int, title: str) -> Iterator[Tensor]:
    """Yield the indices of each batch, shuffled every epoch, and draw progress on rank 0."""
    from tqdm import tqdm

    rank = dist.get_rank()
    shuffle = torch.Generator().manual_seed(seed + rank)
    steps = epochs * -(-count // BATCH)
    redraw = 0.1 if sys.stderr.isatty() else float("inf")  # A log gets the first and last state.
    with tqdm(desc=title, total=steps, ncols=88, mininterval=redraw, disable=rank > 0) as bar:
        for _ in range(epochs):
            for batch in torch.randperm(count, generator=shuffle).split(BATCH):
                yield batch
                bar.update()


def accuracy(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    net.eval()
    with torch.no_grad():
        right = (net(images).argmax(1) == labels).double().mean().item()
    net.train()
    return right


def plot(points: list[Point], title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    steps, loss, distance = zip(*points, strict=True)
    figure = Figure(figsize=(7, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(steps, loss)
    above.set(title=title, ylabel="training loss, mean over ranks", yscale="log")
    below.plot(steps, distance, color="tab:orange")
    # The distance is 0 with ddp, and a log scale cannot show that.
    scale = "log" if max(distance) > 0 else "linear"
    below.set(xlabel="step", ylabel="consensus distance", yscale=scale)
    for axes in (above, below):
        axes.grid(which="both", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
