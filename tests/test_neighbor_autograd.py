"""Gradients of the neighbour operations: those of the transposed map, also numerically."""

from __future__ import annotations

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
from operations import OPERATIONS, group_of_machines, ready_group, tensors

pytestmark = harness.only_bluefog

KINDS = (*oracle.FLOATS, *oracle.COMPLEX)
SIZES = (0, 1, 5, 1000, 40_001)
LISTS: dict[str, st.SearchStrategy[Any]] = {
    "list": st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(SIZES), st.booleans(), st.booleans()),
        min_size=1,
        max_size=4,
    )
}


def averaged(rank: int, world: int, spec: Spec) -> list[str]:
    """Of a list (of one: of that tensor), where some want no gradient and some are not used."""
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
    return [f"rank {rank}: {text}" for text in told if text]


@pytest.mark.parametrize("mode", digraphs.MODES)
def test_averages_on_random_digraphs(pool: harness.Pool, mode: str) -> None:
    @digraphs.relaxed
    @given(digraphs.specs(mode, **LISTS))
    def check(spec: Spec) -> None:
        assert pool.run(averaged, spec, world=spec["world"]) == [[]] * spec["world"]

    check()


GOSSIP = st.lists(st.none() | st.tuples(digraphs.weights, digraphs.weights), min_size=2, max_size=2)


def gossiped(rank: int, world: int, given_weights: list[Any], dtype: torch.dtype) -> str:
    import bluefog_pg

    shares = [w or (0.5, 0.5) for w in given_weights]
    mine = dict(
        zip(("self_weight", "pair_weight"), given_weights[rank] or (None, None), strict=True)
    )
    x = oracle.values(dtype, 333, 1, rank).requires_grad_()
    cs = [oracle.values(dtype, 333, 2, r) for r in range(2)]
    bluefog_pg.pair_gossip(x, 1 - rank, **mine).backward(cs[rank])
    took = {1 - rank: shares[1 - rank][1]}
    return oracle.differs(x.grad, *oracle.neighbor(cs, rank, shares[rank][0], took))


@digraphs.relaxed
@given(given_weights=GOSSIP, dtype=st.sampled_from(KINDS))
def test_gossip(pool: harness.Pool, given_weights: list[Any], dtype: torch.dtype) -> None:
    """Each weighs for itself what both have."""
    assert pool.run(gossiped, given_weights, dtype, world=2) == ["", ""]


def of_machines(rank: int, world: int, edges: digraphs.Edges, weighted: bool) -> str:
    import bluefog_pg

    machine = rank // 2
    spec: Spec = {"edges": edges, "mode": "weighted" if weighted else "uniform", "world": 2}
    x = oracle.values(torch.float64, 5001, 1, rank).requires_grad_()
    cs = [oracle.values(torch.float64, 5001, 2, r) for r in range(4)]
    with group_of_machines(2) as group:
        bluefog_pg.set_machine_topology(digraphs.digraph(spec), weighted, group)
        y = bluefog_pg.hierarchical_neighbor_allreduce(x, group=group)
        y.backward(cs[rank])
    to_own = digraphs.row(spec, machine)[0]
    to_other = digraphs.row(spec, 1 - machine)[1].get(machine, 0.0)
    share = {r: (to_own if r // 2 == machine else to_other) / 2 for r in range(4)}
    return oracle.differs(x.grad, *oracle.neighbor(cs, rank, share.pop(rank), share))


@pytest.mark.parametrize("weighted", [False, True])
def test_machines(pool: harness.Pool, weighted: bool) -> None:
    @digraphs.relaxed
    @given(edges=digraphs.edges(2))
    def check(edges: digraphs.Edges) -> None:
        assert pool.run(of_machines, edges, weighted) == [""] * 4

    check()


def numerically(rank: int, world: int, op: str, twice: bool) -> list[float]:
    """Differences of the loss of all ranks, where one number of one rank is a little larger."""
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


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_numerically(pool: harness.Pool, op: str, twice: bool) -> None:
    for errors in pool.run(numerically, op, twice, world=2 if op == "pair_gossip" else 4):
        assert max(errors) < 1e-6, errors
