"""Gradients of neighbor_allgather and neighbor_alltoall: each goes back to whose row it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.distributed as dist
from hypothesis import given

import digraphs
import harness
import oracle
from digraphs import Spec

pytestmark = harness.only_bluefog

ROWS: dict[str, st.SearchStrategy[Any]] = {
    "rows": st.lists(st.integers(0, 4), min_size=16, max_size=16),
    "cut": st.booleans(),
}


def coefficients(spec: Spec, source: int, to: int, rows: int) -> torch.Tensor:
    """With which `to` goes backward through what it got from `source`."""
    return oracle.values(torch.float64, 3 * rows, 16 * spec["seed"] + source, to).view(rows, 3)


def gathered(rank: int, world: int, spec: Spec) -> str:
    import bluefog_pg

    digraphs.prepare(spec)
    src, dst, given_ranks = digraphs.orders(spec, rank)
    rows = spec["rows"]
    x = oracle.values(torch.float64, 3 * rows[rank], 1, rank).view(-1, 3).requires_grad_()
    y = bluefog_pg.neighbor_allgather(x, **given_ranks)
    y.backward(torch.cat([y.new_empty(0, 3), *(coefficients(spec, r, rank, rows[r]) for r in src)]))
    want = [coefficients(spec, rank, j, rows[rank]) for j in dst]
    same = torch.allclose(x.grad, sum(want, torch.zeros_like(x)), rtol=1e-14, atol=1e-15)
    return "" if same else f"rank {rank}: {x.grad}, not the sum of {want}"


def both_ways(spec: Spec) -> Spec:
    """Who only sends has no result to go backward from."""
    return {
        **spec,
        "edges": {**{(j, i): w for (i, j), w in spec["edges"].items()}, **spec["edges"]},
    }


def swapped(rank: int, world: int, spec: Spec) -> str:
    import bluefog_pg

    spec = both_ways(spec)
    digraphs.prepare(spec)
    src, dst, given_ranks = digraphs.orders(spec, rank)

    def rows(i: int, j: int) -> int:
        return spec["rows"][i if spec["cut"] else 4 * i + j]

    xs = [torch.ones(rows(rank, j), 3, dtype=torch.float64, requires_grad=True) for j in dst]
    if not dst:
        out = bluefog_pg.neighbor_alltoall(torch.ones(1), **given_ranks)
        return f"{len(out)} results" if out else ""
    if spec["cut"]:
        whole = torch.cat([x.detach() for x in xs]).requires_grad_()
        ys = bluefog_pg.neighbor_alltoall(whole, **given_ranks)
    else:
        ys = bluefog_pg.neighbor_alltoall(xs, **given_ranks)
    torch.autograd.backward(ys, [coefficients(spec, i, rank, rows(i, rank)) for i in src])
    grads = whole.grad.tensor_split(len(dst)) if spec["cut"] else [x.grad for x in xs]
    want = [coefficients(spec, rank, j, rows(rank, j)) for j in dst]
    bad = [a is None or oracle.moved(a, b) for a, b in zip(grads, want, strict=True)]
    return f"rank {rank}: {grads}, not {want}" if any(bad) else ""


@pytest.mark.parametrize("mode", ["weighted", "dynamic"])
@pytest.mark.parametrize("body", [gathered, swapped])
def test_rows_on_random_digraphs(pool: harness.Pool, body: Any, mode: str) -> None:
    @digraphs.relaxed
    @given(digraphs.specs(mode, **ROWS))
    def check(spec: Spec) -> None:
        assert pool.run(body, spec, world=spec["world"]) == [""] * spec["world"]

    check()


def receiving_only(rank: int, world: int) -> list[Any]:
    """Rank 1 sends to nobody, but what it got is used: its sources must hear of that."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=4))
    src, dst = {0: ([2], [1, 2]), 1: ([0, 2], []), 2: ([0], [0, 1])}[rank]
    x = torch.ones(len(dst), 2, requires_grad=True)
    ys = bluefog_pg.neighbor_alltoall(x, src_ranks=src, dst_ranks=dst, group=group)
    sum(10**rank * y.sum() for y in ys).backward()
    dist.barrier(group)
    dist.destroy_process_group(group)
    return [] if x.grad is None else x.grad.tolist()


def test_a_rank_that_sends_to_nobody_goes_backward(pool: harness.Pool) -> None:
    told = pool.run(receiving_only, world=3)
    assert told == [[[10, 10], [100, 100]], [], [[1, 1], [10, 10]]]


def sending_only(rank: int, world: int) -> list[Any]:
    """Rank 0 receives from nobody, so has nothing to go backward from. What comes after that?"""
    import bluefog_pg

    src, dst = {0: ([], [1]), 1: ([0, 2], [2]), 2: ([1], [1])}[rank]
    x = torch.full((len(dst), 2), 1.0 + rank, requires_grad=True)
    ys = bluefog_pg.neighbor_alltoall(x, src_ranks=src, dst_ranks=dst)
    if ys:
        sum(y.sum() for y in ys).backward()
    dist.barrier()
    src, dst = {0: ([1], []), 1: ([], [0]), 2: ([], [])}[rank]
    later = bluefog_pg.neighbor_alltoall(torch.full((1, 2), 100.0), src_ranks=src, dst_ranks=dst)
    return [t.tolist() for t in later]


def test_a_rank_that_only_sends_does_not_take_gradients_for_data(pool: harness.Pool) -> None:
    assert pool.run(sending_only, world=3) == [[[[100, 100]]], [], []]
