"""Gradients of the neighbor operations are those of the transposed map, also numerically."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.distributed as dist
from hypothesis import given

from tests.support import digraphs, harness, oracle
from tests.support.digraphs import Spec
from tests.support.operations import OPERATIONS, ready_group, tensors

pytestmark = pytest.mark.gloo

KINDS = (*oracle.FLOATS, *oracle.COMPLEX)
SIZES = (0, 1, 5, 1000, 40_001)
LISTS: dict[str, st.SearchStrategy[Any]] = {
    "list": st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(SIZES), st.booleans(), st.booleans()),
        min_size=1,
        max_size=4,
    )
}


def averaged(rank: int, world: int, spec: Spec) -> None:
    """Average a list, or one tensor, where some want no gradient and some results are not used."""
    import bluefog_pg

    digraphs.prepare(spec)
    listed = spec["list"]
    if not any(wants and used for *_, wants, used in listed):
        listed = [*listed, (torch.float32, 7, True, True)]

    def numbers(i: int, r: int, of: int) -> torch.Tensor:
        return oracle.values(listed[i][0], listed[i][1], 100 * spec["seed"] + 2 * i + of, r)

    xs = [numbers(i, rank, 0).requires_grad_(wants) for i, (*_, wants, _) in enumerate(listed)]
    arguments = digraphs.plan(spec, rank)[0]
    alone = len(xs) == 1 and spec["async"]
    ys = bluefog_pg.neighbor_allreduce(xs[0] if alone else xs, **arguments)
    ys = [ys] if alone else ys
    used = [i for i, (*_, it) in enumerate(listed) if it]
    torch.autograd.backward([ys[i] for i in used], [numbers(i, rank, 1) for i in used])
    own = digraphs.row(spec, rank)[0]
    rows = {r: digraphs.row(spec, r)[1] for r in range(world)}
    took = {r: row[rank] for r, row in rows.items() if rank in row}
    told = []
    for i, (_, _, wants, it) in enumerate(listed):
        grad = xs[i].grad
        if not wants:
            told.append("a gradient that nobody wants" * (grad is not None))
        elif it:
            cs = [numbers(i, r, 1) for r in range(world)]
            told.append(oracle.differs(grad, *oracle.neighbor(cs, rank, own, took)))
        else:
            told.append("not used, but not 0" * (grad is not None and bool(grad.any())))
    bad = [f"tensor {i}: {text}" for i, text in enumerate(told) if text]
    assert not bad, bad


@pytest.mark.slow
@pytest.mark.parametrize("mode", digraphs.MODES)
def test_averages_on_random_digraphs(pool: harness.Pool, mode: str) -> None:
    @digraphs.relaxed
    @given(digraphs.specs(mode, **LISTS))
    def check(spec: Spec) -> None:
        pool.run(averaged, spec, world=spec["world"])

    check()


ROWS: dict[str, st.SearchStrategy[Any]] = {
    "rows": st.lists(st.integers(0, 4), min_size=16, max_size=16),
    "cut": st.booleans(),
}


def coefficients(spec: Spec, source: int, to: int, rows: int) -> torch.Tensor:
    """Return the coefficients with which `to` goes backward through what it got from `source`."""
    return oracle.values(torch.float64, 3 * rows, 16 * spec["seed"] + source, to).view(rows, 3)


def gathered(rank: int, world: int, spec: Spec) -> None:
    import bluefog_pg

    digraphs.prepare(spec)
    src, dst, given_ranks = digraphs.orders(spec, rank)
    rows = spec["rows"]
    x = oracle.values(torch.float64, 3 * rows[rank], 1, rank).view(-1, 3).requires_grad_()
    y = bluefog_pg.neighbor_allgather(x, **given_ranks)
    y.backward(torch.cat([y.new_empty(0, 3), *(coefficients(spec, r, rank, rows[r]) for r in src)]))
    want = [coefficients(spec, rank, j, rows[rank]) for j in dst]
    same = torch.allclose(x.grad, sum(want, torch.zeros_like(x)), rtol=1e-14, atol=1e-15)
    assert same, f"{x.grad}, not the sum of {want}"


def both_ways(spec: Spec) -> Spec:
    """Return the spec with every edge in both directions.

    A rank that only sends has no result to go backward from.
    """
    return {
        **spec,
        "edges": {**{(j, i): w for (i, j), w in spec["edges"].items()}, **spec["edges"]},
    }


def swapped(rank: int, world: int, spec: Spec) -> None:
    import bluefog_pg

    spec = both_ways(spec)
    digraphs.prepare(spec)
    src, dst, given_ranks = digraphs.orders(spec, rank)

    def rows(i: int, j: int) -> int:
        return spec["rows"][i if spec["cut"] else 4 * i + j]

    xs = [torch.ones(rows(rank, j), 3, dtype=torch.float64, requires_grad=True) for j in dst]
    if not dst:
        out = bluefog_pg.neighbor_alltoall(torch.ones(1), **given_ranks)
        assert len(out) == 0, f"{len(out)} results"
        return
    if spec["cut"]:
        whole = torch.cat([x.detach() for x in xs]).requires_grad_()
        ys = bluefog_pg.neighbor_alltoall(whole, **given_ranks)
    else:
        ys = bluefog_pg.neighbor_alltoall(xs, **given_ranks)
    torch.autograd.backward(ys, [coefficients(spec, i, rank, rows(i, rank)) for i in src])
    grads = whole.grad.tensor_split(len(dst)) if spec["cut"] else [x.grad for x in xs]
    want = [coefficients(spec, rank, j, rows(rank, j)) for j in dst]
    bad = [a is None or oracle.moved(a, b) for a, b in zip(grads, want, strict=True)]
    assert not any(bad), f"{grads}, not {want}"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["weighted", "dynamic"])
@pytest.mark.parametrize("body", [gathered, swapped])
def test_rows_on_random_digraphs(pool: harness.Pool, body: Any, mode: str) -> None:
    @digraphs.relaxed
    @given(digraphs.specs(mode, **ROWS))
    def check(spec: Spec) -> None:
        pool.run(body, spec, world=spec["world"])

    check()


def receiving_only(rank: int, world: int) -> list[Any]:
    """Rank 1 sends to nobody, but what it got is used, and its sources hear of that."""
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
    """Rank 0 receives from nobody, has nothing to go backward from, and what follows is right."""
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


@harness.of_the_cpus_engine("a sender waits until its receivers call")
def test_a_rank_that_only_sends_does_not_take_gradients_for_data(pool: harness.Pool) -> None:
    assert pool.run(sending_only, world=3) == [[[[100, 100]]], [], []]


def numerically(rank: int, world: int, op: str, twice: bool) -> list[float]:
    """Return by how much gradients differ from differences of the loss of all ranks.

    One number of one rank is a little larger, and then a little smaller.
    """
    step = 1e-6
    with ready_group() as group:
        x = oracle.values(torch.float64, 3, 1, rank).requires_grad_()

        def loss(x: torch.Tensor) -> torch.Tensor:
            ys = OPERATIONS[op](torch.sin(x), group)
            value = sum((y * y * (rank + 1)).sum() for y in tensors(ys))
            if not twice:
                return value
            (slope,) = torch.autograd.grad(value, x, create_graph=True)
            return (slope * slope).sum()

        loss(x).backward()
        told = []
        for who in range(world):
            for i in range(3):
                ends = []
                for sign in (step, -step):
                    moved = x.detach().clone()
                    moved[i] += sign * (rank == who)
                    value = loss(moved.requires_grad_(twice)).detach().reshape(1)
                    dist.all_reduce(value)
                    ends.append(value.item())
                slope = (ends[0] - ends[1]) / (2 * step)
                if rank == who:
                    told.append(abs(slope - x.grad[i].item()) / (1 + abs(slope)))
        return told


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_numerically(pool: harness.Pool, op: str, twice: bool) -> None:
    for errors in pool.run(numerically, op, twice, world=2 if op == "pair_gossip" else 4):
        assert max(errors) < 1e-6, errors
