"""CUDA graphs capture what a group calls."""

from __future__ import annotations

import pytest

from tests.gpu import graphs, kernels, ranks

pytestmark = kernels.on_cuda


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("async_op", [False, True])
def test_neighbor_allreduce(world: int, async_op: bool) -> None:
    for got, want in ranks.run(graphs.averages, world, async_op):
        assert got == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_all_reduce(world: int) -> None:
    for got, want in ranks.run(graphs.sums, world):
        assert got == pytest.approx(want, rel=1e-6)


def test_other_operations_between_neighbors() -> None:
    for told in ranks.run(graphs.others, 4):
        for name, (got, want) in told.items():
            assert got == pytest.approx(want, rel=1e-6), name
