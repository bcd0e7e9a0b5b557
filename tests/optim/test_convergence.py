"""The algorithms end where their papers prove, and as fast."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor, nn

from tests.support import harness

pytestmark = pytest.mark.gloo

DIM, SAMPLES, RHO = 5, 40, 0.5


class Logistic(nn.Module):
    """A Logistic is the loss of one rank's samples, with a penalty.

    It is the mean of log(1 + exp(-y x.w)), plus RHO/2 |w|^2.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(rank)
        around = 0.4 * rank - 0.6  # Ranks differ in this.
        noise = torch.randn(SAMPLES, generator=generator, dtype=torch.float64)
        x = torch.randn(SAMPLES, DIM, generator=generator, dtype=torch.float64)
        self.x = 0.7 * x + around
        self.y = torch.sign(self.x.sum(1) - 2 * around + noise)
        self.w = nn.Parameter(torch.zeros(DIM, dtype=torch.float64))

    def forward(self) -> Tensor:
        losses = nn.functional.softplus(-self.y * (self.x @ self.w))
        return losses.mean() + RHO / 2 * self.w.square().sum()


def solution(world: int) -> Tensor:
    """Return the minimum of all ranks' losses together, by Newton's method."""
    models = [Logistic(rank) for rank in range(world)]
    w = torch.zeros(DIM, dtype=torch.float64)

    def loss(w: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for model in models:
            total = total + nn.functional.softplus(-model.y * (model.x @ w)).mean()
        return total / world + RHO / 2 * w.square().sum()

    for _ in range(10):
        gradient = torch.autograd.functional.jacobian(loss, w)
        w = w - torch.linalg.solve(torch.autograd.functional.hessian(loss, w), gradient)
    return w


def ended(rank: int, world: int, run: dict[str, Any]) -> float:
    """Return how far this rank's parameters end from the solution."""
    import bluefog_pg
    from bluefog_pg import optim

    model, order = Logistic(rank), run["order"]
    sgd = torch.optim.SGD(model.parameters(), lr=run["lr"], momentum=run.get("momentum", 0.0))
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd,
        model,
        run.get("communication", "neighbor_allreduce"),
        order=order if order in ("awc", "atc") else getattr(optim, order)(),
        topology=digraph(run.get("topology", "ring"), world),
    )
    for _ in range(run["steps"]):
        optimizer.zero_grad()
        model().backward()
        optimizer.step()
    optimizer.close()
    return float((model.w.detach() - solution(world)).norm())


def error(pool: harness.Pool, order: str, lr: float, steps: int, **run: Any) -> float:
    """Return how far those parameters end from the solution that end furthest away."""
    return max(pool.run(ended, {"order": order, "lr": lr, "steps": steps, **run}, timeout=120))


def digraph(kind: str, world: int) -> Any:
    from bluefog_pg import topology_util

    if kind == "directed":  # Only push-sum makes up for this graph's weights.
        graph = nx.DiGraph([(r, (r + 1) % world) for r in range(world)])
        graph.add_edge(0, 2)
        return graph
    graph = topology_util.RingGraph(world)
    for _, _, data in graph.edges(data=True):
        data["weight"] = 1 / 3
    return graph


EXACT = {
    "ExactDiffusion": {},
    "GradientTracking": {},
    "PushDiging": {"topology": "directed", "communication": "push_sum"},
}


@pytest.mark.slow
@pytest.mark.parametrize("order", EXACT)
def test_exact_methods_reach_the_solution(pool: harness.Pool, order: str) -> None:
    assert error(pool, order, 0.2, 250, **EXACT[order]) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("order", EXACT)
def test_exact_methods_converge_linearly(pool: harness.Pool, order: str) -> None:
    """The error falls by the same factor in each 50 steps."""
    errors = [error(pool, order, 0.1, steps, **EXACT[order]) for steps in (100, 150, 200)]
    first, second = errors[1] / errors[0], errors[2] / errors[1]
    assert first < 0.5
    assert abs(math.log(second) / math.log(first) - 1) < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("order", ["awc", "atc"])
def test_plain_averages_end_as_far_away_as_the_step_is_large(
    pool: harness.Pool, order: str
) -> None:
    errors = [error(pool, order, lr, round(20 / lr)) for lr in (0.2, 0.1, 0.05)]
    assert errors[0] > 1e-3
    for larger, smaller in itertools.pairwise(errors):
        assert 1.6 < larger / smaller < 2.4


@pytest.mark.slow
def test_diffusion_ends_nearer_than_consensus(pool: harness.Pool) -> None:
    assert error(pool, "atc", 0.1, 200) < error(pool, "awc", 0.1, 200)


@pytest.mark.thorough
def test_momentum_magnifies_the_bias_of_diffusion_and_not_of_decentlam(pool: harness.Pool) -> None:
    plain = error(pool, "atc", 0.02, 1000)
    assert error(pool, "atc", 0.02, 300, momentum=0.9) > 5 * plain
    assert error(pool, "DecentLaM", 0.02, 500, momentum=0.9) < 1.01 * plain


def local(rank: int, world: int, communication: str, momentum: float) -> list[float]:
    """Return the parameters at each third step, with gradients that are the ranks' numbers."""
    import bluefog_pg
    from bluefog_pg import optim

    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 8.0)
    order = optim.LocalSteps(lambda anchors: torch.optim.SGD(anchors, lr=1.0, momentum=momentum))
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model,
        communication,
        order=order,
        every=3,
        topology=digraph("ring", world),
    )
    found = []
    for step in range(9):
        optimizer.zero_grad()
        (rank * model(torch.ones(1, 1, dtype=torch.float64))).sum().backward()
        optimizer.step()
        if step % 3 == 2:
            found.append(model.weight.item())
    return found


def test_slowmo(pool: harness.Pool) -> None:
    """The ranks move by 0.45 in three steps, in the mean; momentum adds half of the last move."""
    moves = (0.45, 0.45 + 0.225, 0.45 + 0.3375)
    wanted = [8 - sum(moves[: n + 1]) for n in range(3)]
    for found in pool.run(local, "allreduce", 0.5):
        assert found == pytest.approx(wanted, abs=1e-12)


def test_local_steps_with_gossip(pool: harness.Pool) -> None:
    """What ranks move by is averaged with neighbors, and so is where they begin."""
    share = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]).double() / 3
    w, speed = torch.full((4,), 8.0, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    wanted = []
    for _ in range(3):
        speed = 0.5 * speed + share @ (0.3 * torch.arange(4, dtype=torch.float64))
        w = share @ w - speed
        wanted.append(w)
    found = torch.tensor(pool.run(local, "neighbor_allreduce", 0.5), dtype=torch.float64)
    assert found.T == pytest.approx(torch.stack(wanted), abs=1e-12)


def by_quasi_global_momentum(rank: int, world: int) -> list[float]:
    import bluefog_pg
    from bluefog_pg import optim

    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 1.0)
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model,
        order=optim.QuasiGlobalMomentum(0.9),
        topology=digraph("ring", world),
    )
    found = []
    for _ in range(4):
        optimizer.zero_grad()
        (rank * model(torch.ones(1, 1, dtype=torch.float64))).sum().backward()
        optimizer.step()
        found.append(model.weight.item())
    return found


def test_quasi_global_momentum(pool: harness.Pool) -> None:
    share = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]).double() / 3
    w, m = torch.ones(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    wanted = []
    for _ in range(4):
        after = share @ (w - 0.1 * (torch.arange(4) + 0.9 * m))
        w, m = after, 0.9 * m + 0.1 * (w - after) / 0.1
        wanted.append(w)
    found = torch.tensor(pool.run(by_quasi_global_momentum), dtype=torch.float64)
    assert found.T == pytest.approx(torch.stack(wanted), abs=1e-12)


def in_pairs(rank: int, world: int) -> list[float]:
    """Average in pairs without gradients; rank 3 is slow, and nobody waits for it."""
    import bluefog_pg
    from bluefog_pg import optim

    model = nn.Linear(3, 1, bias=False).double()
    nn.init.constant_(model.weight, float(rank))
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), model, order=optim.AsynchronousPairs()
    )
    begun = time.monotonic()
    for _ in range(300):
        model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
        optimizer.step()
        time.sleep(0.005 if rank == world - 1 else 0.001)
    took = time.monotonic() - begun
    optimizer.close()
    return [*model.weight.tolist()[0], took]


@pytest.mark.slow
def test_asynchronous_pairs(pool: harness.Pool) -> None:
    *fast, slow = pool.run(in_pairs)
    ends = torch.tensor([*fast, slow])[:, :3]
    assert ends.mean(0) == pytest.approx(torch.full((3,), 1.5), abs=1e-9)  # Nothing is lost.
    assert ends.std(0).max() < 0.5
    assert max(end[3] for end in fast) < slow[3]
