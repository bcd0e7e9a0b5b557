"""The loops of BlueFog's example programs run, written with the calls that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import harness

WORLD, ROWS, COLUMNS, RATE = 4, 30, 3, 0.02


class Regression:
    """A Regression is a rank's rows of a least squares problem, and the solution of the whole."""

    def __init__(self, rank: int) -> None:
        draw = torch.Generator().manual_seed(5)
        a = torch.randn(WORLD, ROWS, COLUMNS, generator=draw, dtype=torch.float64)
        b = torch.randn(WORLD, ROWS, 1, generator=draw, dtype=torch.float64)
        self.a, self.b = a[rank], b[rank]
        whole = torch.linalg.lstsq(a.reshape(-1, COLUMNS), b.reshape(-1, 1))
        self.solution = whole.solution

    def gradient(self, w: Tensor) -> Tensor:
        """Make the program's backward pass, and return the gradient, having cleared `w.grad`."""
        loss = torch.norm(self.a @ w - self.b) ** 2 / ROWS
        loss.backward()
        assert w.grad is not None
        gradient = w.grad.data.clone()
        w.grad.data.zero_()
        return gradient


def diffusion(bf: Any, w: Tensor, problem: Regression, steps: int) -> None:
    for _ in range(steps):
        phi = w - RATE * problem.gradient(w)  # phi requires a gradient.
        w.data = bf.neighbor_allreduce(phi, name="local variable")


def exact_diffusion(bf: Any, w: Tensor, problem: Regression, steps: int) -> None:
    """Make the matrix that is half of the identity by hand, as upstream does."""
    weights = bf.topology_util.GetRecvWeights(bf.load_topology(), bf.rank())
    own = (weights[0] + 1) / 2
    others = {rank: weight / 2 for rank, weight in weights[1].items()}
    psi_before = w.data.clone()
    for _ in range(steps):
        psi = w.data - RATE * problem.gradient(w)
        phi = psi + w.data - psi_before
        w.data = bf.neighbor_allreduce(phi, own, others, name="local variable")
        psi_before = psi.clone()


def gradient_tracking(bf: Any, w: Tensor, problem: Regression, steps: int) -> None:
    before = problem.gradient(w)
    q = before.clone()
    for _ in range(steps):
        w_handle = bf.neighbor_allreduce_nonblocking(w.data, name="Grad.Tracking.w")
        q_handle = bf.neighbor_allreduce_nonblocking(q, name="Grad.Tracking.q")
        w.data = bf.synchronize(w_handle) - RATE * q
        gradient = problem.gradient(w)
        q = bf.synchronize(q_handle) + gradient - before
        before = gradient


ALGORITHMS: dict[str, tuple[Callable[..., None], float]] = {
    "diffusion": (diffusion, 0.05),  # Diffusion ends beside the solution.
    "exact_diffusion": (exact_diffusion, 1e-6),
    "gradient_tracking": (gradient_tracking, 1e-6),
}
GRAPHS = ("RingGraph", "ExponentialTwoGraph", "MeshGrid2DGraph", "StarGraph")


def solve(rank: int, world: int, name: str) -> None:
    import bluefog_pg.torch as bf

    bf.init()
    problem = Regression(rank)
    algorithm, far = ALGORITHMS[name]
    for graph in GRAPHS:
        made = getattr(bf.topology_util, graph)(world)
        assert bf.set_topology(made, is_weighted=True)
        w = torch.zeros(COLUMNS, 1, dtype=torch.float64, requires_grad=True)
        algorithm(bf, w, problem, 1500)
        off = (w.data - problem.solution).abs().max().item()
        assert off < far, (graph, off)
        bf.barrier()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_by_hand(pool: harness.Pool, name: str) -> None:
    pool.run(solve, name, world=WORLD)


def benchmark(rank: int, world: int) -> None:
    """A rank does what the benchmarks do before and after they train, with each optimizer."""
    import bluefog_pg.torch as bf

    bf.init()
    makers: list[Callable[..., Any]] = [
        bf.DistributedNeighborAllreduceOptimizer,
        bf.DistributedGradientAllreduceOptimizer,
        bf.DistributedAllreduceOptimizer,
        bf.DistributedWinPutOptimizer,
    ]
    for make in makers:
        torch.manual_seed(rank)
        model = torch.nn.Linear(2, 1)
        momentum = 0.9 if rank == 0 else 0.5
        sgd = torch.optim.SGD(model.parameters(), lr=0.01 * bf.size(), momentum=momentum)
        optimizer = make(sgd, model=model)
        bf.broadcast_parameters(model.state_dict(), root_rank=0)
        bf.broadcast_optimizer_state(optimizer, root_rank=0)
        assert optimizer.param_groups[0]["momentum"] == 0.9
        first = bf.allgather(model.weight.data)
        assert first.eq(first[0]).all(), first
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 2)).square().mean().backward()
            optimizer.step()
        loss = bf.allreduce(torch.tensor(float(rank)), average=True, name="avg_loss")
        assert loss.item() == (world - 1) / 2
        speeds = bf.allgather(torch.tensor([float(rank)]))
        assert speeds.tolist() == [float(each) for each in range(world)]
        optimizer.close()
        bf.barrier()


@pytest.mark.filterwarnings("ignore")
def test_benchmarks(pool: harness.Pool) -> None:
    pool.run(benchmark, world=WORLD)
