"""neighbor_allgather and neighbor_alltoall keep the bits of any rows, kinds, graphs and orders."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from tests.support import digraphs, harness, inrank, oracle
from tests.support.digraphs import Spec
from tests.support.guarded import LAYOUTS, guarded

pytestmark = pytest.mark.gloo

# TAILS are shapes of a row, and ROWS are counts of rows: up to several frames of 128 KiB.
TAILS = ((), (1,), (3,), (2, 5), (4096,), (0,), (2, 0))
ROWS = (0, 0, 1, 2, 3, 7, 127)

CASE: dict[str, st.SearchStrategy[Any]] = {
    "dtype": st.sampled_from(oracle.MOVABLE),
    "tail": st.sampled_from(TAILS),
    "rows": st.lists(st.sampled_from(ROWS), min_size=16, max_size=16),
    "layout": st.sampled_from(LAYOUTS),
}


def rows_of(spec: Spec, rank: int, to: int) -> torch.Tensor:
    """Return the rows that the rank has for the rank `to`."""
    rows = spec["rows"][4 * rank + to]
    count = rows * math.prod(spec["tail"])
    return oracle.bits(spec["dtype"], count, spec["seed"], rank, to).view(rows, *spec["tail"])


def call(function: Any, argument: Any, spec: Spec, given_ranks: dict[str, Any]) -> Any:
    if not spec["async"]:
        return function(argument, **given_ranks)
    work = function(argument, **given_ranks, async_op=True)
    work.wait()
    return work.result()


def laid_out(x: torch.Tensor, layout: str) -> Any:
    return guarded(tuple(x.shape), x.dtype, layout, x)


def compared(got: torch.Tensor, want: torch.Tensor) -> str:
    if (got.shape, got.dtype, got.is_contiguous()) != (want.shape, want.dtype, True):
        return f"{got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)}"
    return oracle.moved(got, want)


def gather(rank: int, world: int, spec: Spec) -> None:
    import bluefog_pg

    digraphs.prepare(spec)
    src, _, given_ranks = digraphs.orders(spec, rank)
    mine = laid_out(rows_of(spec, rank, rank), spec["layout"])
    out = call(bluefog_pg.neighbor_allgather, mine.tensor, spec, given_ranks)
    if spec["async"]:
        (out,) = out
    assert not mine.changed(), "the input was changed"
    none = torch.empty(0, *spec["tail"], dtype=spec["dtype"])
    bad = compared(out, torch.cat([none, *(rows_of(spec, i, i) for i in src)]))
    assert not bad, bad


def swap(rank: int, world: int, spec: Spec) -> None:
    import bluefog_pg

    digraphs.prepare(spec)
    src, dst, given_ranks = digraphs.orders(spec, rank)
    if not dst:  # An empty list does not say of what kind it is, and an empty tensor does.
        mine = [laid_out(torch.empty(0, *spec["tail"], dtype=spec["dtype"]), spec["layout"])]
        argument: Any = mine[0].tensor
    else:
        mine = [laid_out(rows_of(spec, rank, j), spec["layout"]) for j in dst]
        argument = [g.tensor for g in mine]
    out = call(bluefog_pg.neighbor_alltoall, argument, spec, given_ranks)
    assert not any(g.changed() for g in mine), "an input was changed"
    assert len(out) == len(src), f"{len(out)} results of {len(src)} sources"
    bad = {i: compared(got, rows_of(spec, i, rank)) for got, i in zip(out, src, strict=True)}
    assert not any(bad.values()), f"by their sources: {bad}"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["weighted", "dynamic"])
@pytest.mark.parametrize("body", [gather, swap])
def test_random_digraphs(pool: harness.Pool, body: Any, mode: str) -> None:
    @digraphs.relaxed
    @given(digraphs.specs(mode, **CASE))
    def check(spec: Spec) -> None:
        pool.run(body, spec, world=spec["world"])

    check()


def every_kind(rank: int, world: int) -> None:
    """Exchange every kind, also those that neither numpy nor sums know.

    One rank after the other has no rows, where all others have some.
    """
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    others = [r for r in range(world) if r != rank]
    bad = []
    for dtype in oracle.MOVABLE:
        for empty in range(world):
            xs = [oracle.bits(dtype, 6 * (r != empty), r).view(-1, 2) for r in range(world)]
            got = bluefog_pg.neighbor_allgather(xs[rank])
            told = [compared(got, torch.cat([xs[r] for r in others]))]
            parts = bluefog_pg.neighbor_alltoall([xs[rank]] * len(others))
            told += [compared(p, xs[r]) for p, r in zip(parts, others, strict=True)]
            bad += [f"{dtype}, rank {empty} has no rows: {text}" for text in told if text]
    assert not bad, bad


def test_every_kind_with_one_rank_that_has_no_rows(pool: harness.Pool) -> None:
    pool.run(every_kind)


def in_equal_parts(rank: int, world: int, rows: int) -> list[Any]:
    """Cut one tensor for all out-neighbors; every rank cuts its own number of rows."""
    import bluefog_pg

    bluefog_pg.set_topology()  # exponential-2: two out-neighbors of four ranks
    x = torch.arange(2 * rows * (rank + 1)).add(1000 * rank).view(-1, 1)
    got = bluefog_pg.neighbor_alltoall(x)
    by_list = bluefog_pg.neighbor_alltoall(list(x.chunk(2)) if rows else [x, x])
    same = all(torch.equal(a, b) for a, b in zip(got, by_list, strict=True))
    got[0].zero_()
    return [same, [t.flatten().tolist() for t in got[1:]], bool((x >= 1000 * rank).all())]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_one_tensor_in_equal_parts(pool: harness.Pool, rows: int) -> None:
    for rank, (same, (got,), kept) in enumerate(pool.run(in_equal_parts, rows)):
        source = max((rank - 1) % 4, (rank - 2) % 4)
        n = rows * (source + 1)
        to = sorted([(source + 1) % 4, (source + 2) % 4])
        begin = 1000 * source + n * to.index(rank)
        assert got == list(range(begin, begin + n))
        assert same and kept


def large(rank: int, world: int) -> None:
    """Send some MB, uneven, from one side of a ring to the other and back, with their bits."""
    import bluefog_pg

    sizes = [1, 131_072, 131_073, 1_500_001]
    before, behind = (rank - 1) % world, (rank + 1) % world
    xs = [oracle.bits(torch.uint8, n, r) for r, n in enumerate(sizes)]
    ring = {"src_ranks": [before], "dst_ranks": [behind]}
    works = [bluefog_pg.neighbor_allgather(xs[rank], **ring, async_op=True) for _ in range(3)]
    back = bluefog_pg.neighbor_alltoall([xs[rank]], src_ranks=[behind], dst_ranks=[before])
    bad = [compared(back[0], xs[behind])]
    for work in works:
        work.wait()
        bad.append(compared(work.result()[0], xs[before]))
    assert not any(bad), f"of the way back and each way there: {bad}"


def test_large(pool: harness.Pool) -> None:
    pool.run(large)


def unlike(rank: int, world: int, shapes: list[Any], op: str) -> list[Any]:
    import bluefog_pg

    function = getattr(bluefog_pg, op)
    ranks = {"src_ranks": [1 - rank], "dst_ranks": [1 - rank]}
    error = inrank.catch(function, torch.ones(shapes[rank]), **ranks)
    (*_, got) = function(torch.full((1, 2), float(rank)), **ranks)
    return [error, got.flatten().tolist()]


@harness.of_the_cpus_engine("an error ends the group's calls")
@pytest.mark.parametrize("op", ["neighbor_allgather", "neighbor_alltoall"])
@pytest.mark.parametrize("shapes", [[(1, 2, 3), (1, 3, 2)], [(2, 2), (4, 1)], [(3,), (3, 1)]])
def test_rows_that_differ_are_told_apart(pool: harness.Pool, op: str, shapes: list[Any]) -> None:
    for rank, (error, got) in enumerate(pool.run(unlike, shapes, op, world=2)):
        assert op in harness.raised(error, "Mismatch", ranks=[0, 1]).text
        assert got == [1 - rank] * 2


def without_elements(rank: int, world: int) -> list[Any]:
    """Rows that hold nothing still count: from ranks, in order, and backward."""
    import bluefog_pg
    from bluefog_pg import collectives

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    x = torch.ones(rank + 1, 2, 0, requires_grad=True)
    told = []
    for call in (bluefog_pg.neighbor_allgather, collectives.allgather):
        rows = call(x)
        rows.sum().backward()
        work = call(x, async_op=True)
        work.wait()
        told += [rows.shape, work.result()[0].shape, x.grad is not None and x.grad.shape]
    parts = bluefog_pg.neighbor_alltoall([x.detach(), x.detach()[1:]])
    # The error would end others' earlier calls on an accelerator.
    inrank.meet("before an error", world)
    uneven = inrank.catch(bluefog_pg.neighbor_allgather, torch.ones(2, 0, 1 + rank % 2))
    return [told, [part.shape for part in parts], uneven]


def test_rows_without_elements(pool: harness.Pool) -> None:
    for rank, (told, parts, uneven) in enumerate(pool.run(without_elements)):
        left, right = (rank - 1) % 4, (rank + 1) % 4
        mine = (rank + 1, 2, 0)
        near, whole = (left + 1 + right + 1, 2, 0), (10, 2, 0)
        assert told == [near, near, mine, whole, whole, mine]
        assert parts == [
            (source + 1 - (rank == max((source - 1) % 4, (source + 1) % 4)), 2, 0)
            for source in sorted((left, right))
        ]
        harness.raised(uneven, "Mismatch")
