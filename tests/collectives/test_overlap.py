"""Collectives whose input and output share memory give what a copy of the input would give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.support import harness, hosts

SIZES = (1, 8, 1000, 40_000)  # numbers of elements of one rank's part
Outputs = list[Tensor]


class Ground:
    """A Ground is a rank's memory, with three times as many elements as all ranks' parts have."""

    def __init__(self, rank: int, world: int, n: int) -> None:
        self.rank, self.world, self.n = rank, world, n
        self.x = self.of(rank)

    def of(self, rank: int) -> Tensor:
        return torch.arange(3 * self.world * self.n) * (rank + 1)

    def part(self, start: int, parts: int = 1, rank: int | None = None) -> Tensor:
        """Return a view of this rank's memory, or what another rank has there at first."""
        x = self.x if rank is None else self.of(rank)
        return x[start : start + parts * self.n]

    @property
    def backend(self) -> Any:
        return dist.group.WORLD

    def gathered(self, start: Callable[[int], int]) -> Tensor:
        return torch.cat([self.part(start(r), rank=r) for r in range(self.world)])

    def summed(self, start: int) -> Tensor:
        return torch.stack([self.part(start, rank=r) for r in range(self.world)]).sum(0)


# Each of these calls has an input or an output at its part's place in the whole, moved by `by`. It
# returns its outputs, and what they should be.
def all_gather_into_tensor(g: Ground, by: int) -> tuple[Outputs, Outputs]:
    whole = g.part(0, g.world)
    dist.all_gather_into_tensor(whole, g.part(g.rank * g.n + by))
    return [whole], [g.gathered(lambda r: r * g.n + by)]


def all_gather(g: Ground, by: int) -> tuple[Outputs, Outputs]:
    parts = list(g.part(0, g.world).split(g.n))
    dist.all_gather(parts, g.part(g.rank * g.n + by))
    return [torch.cat(parts)], [g.gathered(lambda r: r * g.n + by)]


def reduce_scatter_tensor(g: Ground, by: int) -> tuple[Outputs, Outputs]:
    mine = g.part(g.rank * g.n + by)
    dist.reduce_scatter_tensor(mine, g.part(0, g.world))
    return [mine], [g.summed(g.rank * g.n)]


def reduce_scatter(g: Ground, by: int) -> tuple[Outputs, Outputs]:
    mine = g.part(g.rank * g.n + by)
    dist.reduce_scatter(mine, list(g.part(0, g.world).split(g.n)))
    return [mine], [g.summed(g.rank * g.n)]


def all_to_all_single(g: Ground, by: int) -> tuple[Outputs, Outputs]:
    out = g.part(0, g.world)
    dist.all_to_all_single(out, g.part(by, g.world))
    return [out], [g.gathered(lambda _: by + g.rank * g.n)]


def allgather_into_tensor_coalesced(g: Ground, by: int) -> tuple[Outputs, Outputs]:
    outs = [g.part(by, g.world), torch.empty(g.world * g.n, dtype=torch.int64)]
    ins = [torch.full((g.n,), g.rank), g.part(0)]
    g.backend.allgather_into_tensor_coalesced(outs, ins).wait()
    ranks = torch.arange(g.world).repeat_interleave(g.n)
    return outs, [ranks, g.gathered(lambda _: 0)]


def allgather_coalesced(g: Ground, by: int) -> tuple[Outputs, Outputs]:
    lists = [[p, torch.empty_like(p)] for p in g.part(by, g.world).split(g.n)]
    dist.all_gather_coalesced(lists, [torch.full((g.n,), g.rank), g.part(0)])
    outs = [torch.cat([pair[k] for pair in lists]) for k in (0, 1)]
    ranks = torch.arange(g.world).repeat_interleave(g.n)
    return outs, [ranks, g.gathered(lambda _: 0)]


def reduce_scatter_tensor_coalesced(g: Ground, by: int) -> tuple[Outputs, Outputs]:
    outs = [g.part(by), torch.empty(g.n, dtype=torch.int64)]
    ins = [torch.full((g.world * g.n,), 1), g.part(0, g.world)]
    g.backend.reduce_scatter_tensor_coalesced(outs, ins).wait()
    return outs, [torch.full((g.n,), g.world), g.summed(g.rank * g.n)]


CALLS = (
    all_gather_into_tensor,
    all_gather,
    reduce_scatter_tensor,
    reduce_scatter,
    all_to_all_single,
    allgather_into_tensor_coalesced,
    allgather_coalesced,
    reduce_scatter_tensor_coalesced,
)


def overlapping(rank: int, world: int) -> None:
    """Call everything in place, and moved by one element, half a part, a part and more."""
    bad = []
    for n in SIZES:
        for call in CALLS:
            for by in sorted({0, 1, n // 2, n, n + n // 2, (world - 1) * n}):
                got, want = call(Ground(rank, world, n), by)
                if not all(map(torch.equal, got, want)):
                    bad.append(f"{call.__name__} of {n} elements, moved by {by}")
    assert not bad, bad


@pytest.mark.mpi
@pytest.mark.parametrize("world", [2, 3, 4])
def test_outputs_over_inputs(pool: harness.Pool, world: int) -> None:
    pool.run(overlapping, world=world)


def test_outputs_over_inputs_between_hosts() -> None:
    with hosts.network(2) as names:
        harness.run_ranks(overlapping, 4, hosts=names)
