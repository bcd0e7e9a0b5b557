"""CUDA graphs that capture what a group calls."""

from __future__ import annotations

import pytest

import graphs
import kernels
import ranks

pytestmark = kernels.on_cuda


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("async_op", [False, True])
def test_neighbor_allreduce(world: int, async_op: bool) -> None:
    for got, want in ranks.run(graphs.averages, world, async_op):
        assert got == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("world", [1, 2])
def test_all_reduce(world: int) -> None:
    for got, want in ranks.run(graphs.sums, world):
        assert got == pytest.approx(want, rel=1e-6)
