"""Train a small language model of letters, decentralized, on texts that come with Python.

    torchrun --standalone --nproc-per-node 4 examples/language_model.py

Each rank reads other documentation strings of the standard library, trains by itself, and averages
with one neighbor at each step, in bfloat16.
"""

import argparse
import importlib
import inspect
import pkgutil
import sys

import torch
import torch.distributed as dist
from devices import own_device
from torch import Tensor, nn

import bluefog_pg

CONTEXT, WIDTH, LETTERS = 64, 96, 128  # The letters are those of ASCII.
PACKAGES = ("asyncio", "email", "logging", "unittest", "json", "http", "xml", "importlib")


def text(rank: int, world: int) -> str:
    """Return the documentation strings of every `world`-th module, beginning with number `rank`."""
    names = [
        f"{package}.{module.name}"
        for package in PACKAGES
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
        if not module.name.startswith("_")
    ]
    found = []
    for name in names[rank::world]:
        try:
            module = importlib.import_module(name)
        except ImportError:  # The module is for another operating system.
            continue
        found += [inspect.getdoc(item) or "" for _, item in inspect.getmembers(module)]
    return "\n".join(dict.fromkeys(found))


class Model(nn.Module):
    """The model predicts the next letter from those before, by two layers of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(WIDTH, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, letters: Tensor) -> Tensor:
        hidden = self.letters(letters) + self.places
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


def loss_of(model: nn.Module, letters: Tensor, generator: torch.Generator) -> Tensor:
    """Return the loss of a random batch, in nats for each letter."""
    starts = torch.randint(len(letters) - CONTEXT - 1, (16, 1), generator=generator)
    windows = letters[starts + torch.arange(CONTEXT + 1)]
    logits = model(windows[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def mean_of_ranks(loss: Tensor) -> float:
    mean = loss.detach().clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean.item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small language model.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--topology", default="one-peer-exp2")
    parser.add_argument("--compression", default="bf16")
    parser.add_argument("--device", type=own_device, default="cpu", help="cuda: of GPUs")
    parser.add_argument("--require-loss", type=float, default=float("inf"), metavar="2.2")
    args = parser.parse_args()

    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    letters = torch.tensor(list(text(rank, world).encode("ascii", "ignore")), device=args.device)
    generator = torch.Generator().manual_seed(rank)
    torch.manual_seed(0)  # gives all ranks the same first parameters
    model = Model().to(args.device)
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=3e-3),
        model,
        topology=args.topology,
        compression=args.compression,
    )
    recorder = bluefog_pg.optim.Recorder(optimizer, None)
    loss = torch.tensor(0.0)
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = loss_of(model, letters, generator)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            found, mean = recorder.write(step, distance=True), mean_of_ranks(loss)
            if rank == 0:
                apart, sent = found["consensus_distance"], found["bytes_sent"] / 50
                print(f"{step:>5}: mean loss {mean:.3f}, {apart:.3f} apart, {sent:,.0f} B a step")
    mean = mean_of_ranks(loss)
    if rank == 0:
        print(f"mean loss at the end {mean:.3f}")
    dist.destroy_process_group()
    if mean > args.require_loss:
        sys.exit(f"rank {rank}: a loss of {mean:.2f}, more than {args.require_loss}")


if __name__ == "__main__":
    main()
