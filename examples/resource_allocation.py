"""Allocate production at the least cost for all; no rank knows another's cost or demand.

    torchrun --standalone --nproc-per-node 4 examples/resource_allocation.py

Rank i makes x_i at cost a_i x_i^2 / 2 + b_i x_i, and needs d_i; together they need what they make.
At a price p each makes what is cheapest for it, x_i(p) = (p - b_i) / a_i. At the right price
sum_i x_i(p) = sum_i d_i. That price solves the dual problem: it minimizes the sum of
f_i(p) = (p - b_i)^2 / (2 a_i) - d_i p. Ranks tell their neighbors only their estimates of the
price.
"""

import argparse
import sys

import torch
import torch.distributed as dist
from devices import own_device
from torch import Tensor, nn

import bluefog_pg
from bluefog_pg import optim


class Producer(nn.Module):
    def __init__(self, rank: int, products: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(rank)
        size = (3, products)
        numbers = 1 + torch.rand(size, generator=generator, dtype=torch.float64)
        for name, of_products in zip(("a", "b", "demand"), numbers, strict=True):
            self.register_buffer(name, of_products)
        self.price = nn.Parameter(torch.zeros(products, dtype=torch.float64))

    def made(self) -> Tensor:
        return (self.price.detach() - self.b) / self.a

    def forward(self) -> Tensor:
        return ((self.price - self.b) ** 2 / (2 * self.a) - self.demand * self.price).sum()


def told(numbers: Tensor) -> str:
    return " ".join(f"{number:.4f}" for number in numbers.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description="Decentralized resource allocation.")
    parser.add_argument(
        "--method", choices=("ExactDiffusion", "GradientTracking"), default="ExactDiffusion"
    )
    parser.add_argument("--device", type=own_device, default="cpu", help="cuda: of GPUs")
    parser.add_argument("--products", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--require-error", type=float, default=float("inf"), metavar="1e-10")
    args = parser.parse_args()

    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    producer = Producer(rank, args.products).to(args.device)
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(producer.parameters(), lr=0.15),
        producer,
        order=getattr(optim, args.method)(),
        topology="ring",
    )
    for _ in range(args.steps):
        optimizer.zero_grad()
        producer().backward()
        optimizer.step()

    everyone = [Producer(r, args.products).to(args.device) for r in range(world)]
    wanted = sum(p.demand + p.b / p.a for p in everyone) / sum(1 / p.a for p in everyone)
    error = (producer.price.detach() - wanted).abs().max().item()
    balance = producer.made() - producer.demand
    dist.all_reduce(balance)
    if rank == 0:
        print(f"prices {told(producer.price)}\nbalance {balance.abs().max():.2e}", flush=True)
    print(f"rank {rank} makes {told(producer.made())}, off by {error:.2e}", flush=True)
    dist.destroy_process_group()
    if error > args.require_error:
        sys.exit(f"rank {rank}: an error of {error:.2e}, more than {args.require_error:.0e}")


if __name__ == "__main__":
    main()
