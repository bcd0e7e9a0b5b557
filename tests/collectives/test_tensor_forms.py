"""Collectives take the tensors that gloo takes: transposed, expanded, the same one many times."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from tests.support import harness

RANKS = 3
SIZES = (1, 70_000)  # one size that fits one frame, and one that does not


def transposed(rank: int, world: int, size: int) -> None:
    """Outputs are filled in the order of their elements, not of their memory."""
    out = torch.zeros(size, 2 * world).t()
    dist.all_gather_into_tensor(out, torch.full((2, size), float(rank)))
    ranks = torch.arange(float(world)).repeat_interleave(2)
    assert torch.equal(out, ranks[:, None].expand(2 * world, size))
    out = torch.zeros(size, 2).t()
    given = torch.arange(2.0 * world)[:, None].expand(2 * world, size)
    dist.reduce_scatter_tensor(out, given.contiguous())
    assert torch.equal(out, world * given[2 * rank : 2 * rank + 2])


@pytest.mark.parametrize("size", SIZES)
def test_transposed_outputs(pool: harness.Pool, size: int) -> None:
    pool.run(transposed, size)


def expanded(rank: int, world: int, size: int) -> None:
    """The root of a broadcast only reads its tensor; the others' are written."""
    x = torch.tensor([5.0]).expand(size) if rank == 1 else torch.zeros(size)
    for _ in range(2):
        dist.broadcast(x, 1)
    assert (x == 5).all()
    strided = torch.full((2 * size,), float(rank))[::2]
    dist.broadcast(strided, 1)
    assert (strided == 1).all()


@pytest.mark.parametrize("size", [2, SIZES[1]])
def test_an_expanded_root(pool: harness.Pool, size: int) -> None:
    pool.run(expanded, size)


def shared(rank: int, world: int, size: int) -> None:
    """Where outputs share memory, that of a later rank is the one that stays."""
    same = torch.zeros(size)
    dist.all_gather([same] * world, torch.full((size,), float(rank)))
    assert (same == world - 1).all()
    whole = torch.zeros(2 * size + world)
    outs = [whole[place : place + 2 * size] for place in range(world)]
    dist.all_gather(outs, torch.full((2 * size,), float(rank)))
    assert whole[: world - 1].tolist() == [0.0, 1.0]
    assert (whole[world - 1 : -1] == world - 1).all()


@pytest.mark.parametrize("size", SIZES)
def test_outputs_that_share_memory(pool: harness.Pool, size: int) -> None:
    pool.run(shared, size)
