"""Solve logistic regression on data that no rank shares, by decentralized methods.

    torchrun --standalone --nproc-per-node 4 examples/decentralized_optimization.py

With a constant step, exact_diffusion, gradient_tracking and push_diging converge linearly to the
solution for all data together; diffusion ends near it (`--method`).
"""

import argparse
import sys

import networkx as nx
import torch
import torch.distributed as dist
from devices import own_device
from torch import Tensor, nn

import bluefog_pg
from bluefog_pg import optim

METHODS = {
    "diffusion": lambda: "atc",
    "exact_diffusion": optim.ExactDiffusion,
    "gradient_tracking": optim.GradientTracking,
    "push_diging": optim.PushDiging,
}
DIMENSION, SAMPLES, RHO = 10, 100, 0.1


class Logistic(nn.Module):
    """The loss is the mean of log(1 + exp(-y x.w)) over this rank's samples, + RHO / 2 |w|^2."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(rank)
        options = {"generator": generator, "dtype": torch.float64}
        x = torch.randn(SAMPLES, DIMENSION, **options)
        truth = torch.randn(DIMENSION, generator=generator.manual_seed(99), dtype=torch.float64)
        y = torch.sign(x @ truth + 0.5 * rank + torch.randn(SAMPLES, **options))
        self.register_buffer("x", x)
        self.register_buffer("y", y)
        self.w = nn.Parameter(torch.zeros(DIMENSION, dtype=torch.float64))

    def forward(self) -> Tensor:
        return loss_at(self.w, [self])


def loss_at(w: Tensor, models: list[Logistic]) -> Tensor:
    losses = [nn.functional.softplus(-model.y * (model.x @ w)).mean() for model in models]
    return torch.stack(losses).mean() + RHO / 2 * w.square().sum()


def solution(world: int) -> Tensor:
    """Return the solution for all ranks' data, which each rank computes by Newton's method."""
    models = [Logistic(rank) for rank in range(world)]
    w = torch.zeros(DIMENSION, dtype=torch.float64)
    for _ in range(10):
        gradient = torch.func.grad(loss_at)(w, models)
        w = w - torch.linalg.solve(torch.func.hessian(loss_at)(w, models), gradient)
    return w


def topology(method: str, world: int) -> nx.DiGraph:
    # Push-DIGing also works on digraphs whose ranks have different numbers of neighbors.
    if method == "push_diging" and world > 2:
        graph = nx.DiGraph([(rank, (rank + 1) % world) for rank in range(world)])
        graph.add_edge(0, 2)
        return graph
    return bluefog_pg.topology_util.RingGraph(world)


def main() -> None:
    parser = argparse.ArgumentParser(description="Decentralized logistic regression.")
    parser.add_argument("--method", choices=METHODS, default="exact_diffusion")
    parser.add_argument("--device", type=own_device, default="cpu", help="cuda: of GPUs")
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--require-error", type=float, default=float("inf"), metavar="1e-10")
    args = parser.parse_args()

    dist.init_process_group("bluefog")
    rank, world = dist.get_rank(), dist.get_world_size()
    model, wanted = Logistic(rank).to(args.device), solution(world).to(args.device)
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.lr),
        model,
        order=METHODS[args.method](),
        topology=topology(args.method, world),
    )
    error = 0.0
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        model().backward()
        optimizer.step()
        error = (model.w.detach() - wanted).norm().item()
        if rank == 0 and (step & (step - 1) == 0 or step == args.steps):  # steps 1, 2, 4, 8, ...
            print(f"{args.method}, step {step:>5}: |w - solution| = {error:.3e}", flush=True)
    dist.destroy_process_group()
    if error > args.require_error:
        sys.exit(f"rank {rank}: an error of {error:.2e}, more than {args.require_error:.0e}")


if __name__ == "__main__":
    main()
