"""Models may have parameters of several types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.support import harness
from tests.support.optimizers import order_named


class Mixed(nn.Module):
    """A Mixed has the same parameters in each type, with the same gradients at each step."""

    def __init__(self, rank: int, dtypes: tuple[torch.dtype, ...]) -> None:
        super().__init__()
        self.rank = rank
        start = rank + torch.tensor([0.0, 0.5, 1.0, -1.0, -0.5])
        self.places = nn.ParameterList(
            nn.Parameter(part.to(dtype)) for part in (start, -start[:3]) for dtype in dtypes
        )

    def forward(self, x: Tensor) -> Tensor:
        return sum(
            (self.rank * x * place.double() * torch.tensor([1.0, 2, -1, 1, 2])[: len(place)]).sum()
            for place in self.places
        )

    def of_types(self) -> list[list[float]]:
        """Return the parameters of each type as one list."""
        count = len(self.places) // 2
        return [self.places[at].tolist() + self.places[count + at].tolist() for at in range(count)]


MIXED = (torch.float32, torch.float64, torch.bfloat16)

KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "awc": dict,
    "atc": lambda: {"order": "atc"},
    "gradients": lambda: {"communication": "gradient_allreduce"},
    "push-sum": lambda: {"communication": "push_sum"},
    "win_put": lambda: {"communication": "win_put"},
    "win_get": lambda: {"communication": "win_get"},
    "compressed": lambda: {"compression": "bf16"},
    "tracking": lambda: {"order": order_named("GradientTracking")},
    "diffusion": lambda: {"order": order_named("ExactDiffusion")},
    "decentlam": lambda: {"order": order_named("DecentLaM")},
    "local": lambda: {"order": order_named("LocalSteps"), "every": 2},
    "nothing": lambda: {"communication": "empty"},
}


def of_types(
    rank: int, _world: int, kind: str, dtypes: tuple[torch.dtype, ...]
) -> list[list[float]]:
    """All numbers have so few digits that each type has them exactly."""
    import bluefog_pg

    model = Mixed(rank, dtypes)
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.25), model, topology="full", **KINDS[kind]()
    )
    places = [param.data_ptr() for param in model.parameters()]
    for _ in range(2):
        optimizer.zero_grad()
        dist.barrier()
        model(torch.ones(1, dtype=torch.float64)).backward()
        dist.barrier()
        optimizer.step()
    assert [param.dtype for param in model.parameters()] == [*dtypes] * 2
    assert [param.data_ptr() for param in model.parameters()] == places
    optimizer.close()
    return model.of_types()


@pytest.mark.parametrize("kind", KINDS)
def test_types_in_one_model(pool: harness.Pool, kind: str) -> None:
    alone = [wanted for (wanted,) in pool.run(of_types, kind, (torch.float64,))]
    x = torch.tensor(alone, dtype=torch.float64)
    assert torch.equal(x.bfloat16().double(), x)
    assert pool.run(of_types, kind, MIXED) == [[wanted] * 3 for wanted in alone]
    by_themselves = pool.run(of_types, "nothing", (torch.float64,))
    assert (by_themselves == [[wanted] for wanted in alone]) == (kind == "nothing")
