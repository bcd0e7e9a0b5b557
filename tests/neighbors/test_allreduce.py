"""neighbor_allreduce gives what the oracle does, for random digraphs, weights and kinds."""

from __future__ import annotations

import time
from typing import Any

import hypothesis.strategies as st
import networkx as nx
import pytest
import torch
import torch.distributed as dist
from hypothesis import given

from tests.support import harness, oracle
from tests.support.digraphs import plan, prepare, relaxed, specs

pytestmark = [pytest.mark.mpi, pytest.mark.gloo]

SIZES = (0, 1, 7, 1000, 16385, 40_001)
KINDS = {"dtype": st.sampled_from(oracle.FLOATS), "n": st.sampled_from(SIZES)}


def average(rank: int, world: int, spec: dict[str, Any]) -> None:
    import bluefog_pg

    prepare(spec)
    xs = [oracle.values(spec["dtype"], spec["n"], spec["seed"], r) for r in range(world)]
    mine, arguments = xs[rank].clone(), plan(spec, rank)
    if spec["async"]:
        work = bluefog_pg.neighbor_allreduce(mine, **arguments[0], async_op=True)
        work.wait()
        out = work.result()[0]
    else:
        out = bluefog_pg.neighbor_allreduce(mine, **arguments[0])
    assert torch.equal(mine, xs[rank]), "the input was changed"
    lies_in_it = out.data_ptr() == mine.data_ptr()
    assert not (spec["n"] and lies_in_it), "the result lies in the input's memory"
    kind = (out.shape, out.dtype, out.requires_grad)
    assert kind == (mine.shape, mine.dtype, False), kind
    bad = oracle.differs(out, *oracle.neighbor(xs, rank, *arguments[1:]))
    assert not bad, bad


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["uniform", "weighted", "explicit", "subset"])
def test_static_digraphs(pool: harness.Pool, mode: str) -> None:
    @relaxed
    @given(specs(mode, **KINDS))
    def check(spec: dict[str, Any]) -> None:
        pool.run(average, spec, world=spec["world"])

    check()


@relaxed
@given(spec=specs("dynamic", **KINDS))
def test_dynamic_digraphs(pool: harness.Pool, spec: dict[str, Any]) -> None:
    pool.run(average, spec, world=spec["world"])


def default_graph(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    bluefog_pg.set_topology()
    got = [bluefog_pg.neighbor_allreduce(torch.tensor(float(rank))).item()]
    x = torch.full((2, 3), float(rank))
    for _ in range(40):
        x = bluefog_pg.neighbor_allreduce(x)
    return [*got, x.tolist()]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_default_is_exponential_two(pool: harness.Pool, world: int) -> None:
    hops = {1: [], 2: [1], 3: [1, 2], 4: [1, 2]}[world]
    mean = (world - 1) / 2
    for rank, (first, settled) in enumerate(pool.run(default_graph, world=world)):
        near = [rank, *((rank - h) % world for h in hops)]
        assert first == pytest.approx(sum(near) / len(near), rel=1e-6)
        assert torch.tensor(settled).allclose(torch.full((2, 3), mean))


def one_peer(rank: int, world: int, steps: int) -> None:
    """Average with one peer a step, in the dynamic exponential-2 graph.

    After two steps of four ranks, all have the mean.
    """
    import bluefog_pg

    x = oracle.values(torch.float64, 999, 1, rank)
    mean = sum(oracle.values(torch.float64, 999, 1, r) for r in range(world)) / world
    for step in range(steps):
        hop = 2 ** (step % 2)
        weights = {"self_weight": 0.5, "src_weights": {(rank - hop) % world: 0.5}}
        x = bluefog_pg.neighbor_allreduce(x, **weights, dst_weights=[(rank + hop) % world])
        if step == 1:
            second = x
    assert second.allclose(mean, rtol=1e-12), f"after two steps {second[:3]}, not {mean[:3]}"
    assert x.allclose(mean, rtol=1e-12), f"it left the mean: {x[:3]}, not {mean[:3]}"


def test_dynamic_one_peer(pool: harness.Pool) -> None:
    pool.run(one_peer, 200)


def large(rank: int, world: int, dtype: torch.dtype) -> None:
    """Average 8 MiB several times with other ranks late: right, and the same bits each time."""
    import bluefog_pg

    bluefog_pg.set_topology()
    n = (8 << 20) // dtype.itemsize
    xs = [oracle.values(dtype, n, 3, r) for r in range(world)]
    bits = set()
    for late in range(world):
        if rank == late:
            time.sleep(0.03)
        out = bluefog_pg.neighbor_allreduce(xs[rank])
        bits.add(oracle.digest(out))
    src = {(rank - 1) % world: 1 / 3, (rank - 2) % world: 1 / 3}
    bad = oracle.differs(out, *oracle.neighbor(xs, rank, 1 / 3, src))
    assert not bad, bad
    assert len(bits) == 1, f"results of {len(bits)} kinds of bits"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_large_and_deterministic(pool: harness.Pool, dtype: torch.dtype) -> None:
    pool.run(large, dtype)


def skewed(rank: int, world: int, rounds: int) -> None:
    """Fast ranks run ahead of slow ones: rounds do not mix, whatever else is under way."""
    import bluefog_pg

    bluefog_pg.set_topology()
    bad = []
    for i in range(rounds):
        if (rank * 7 + i) % 11 == 0:
            time.sleep(0.003)
        n = (i * 131) % 2000 + 1
        out = bluefog_pg.neighbor_allreduce(torch.full((n,), float(100 * i + rank)))
        want = 100 * i + (rank + (rank - 1) % world + (rank - 2) % world) / 3
        if not out.allclose(torch.tensor(want)):
            bad.append(f"round {i}: {out[0]}, not {want}")
        if i % 5 == 0:
            t = torch.ones(n)
            dist.all_reduce(t)
            if not (t == world).all():
                bad.append(f"round {i}: all_reduce gave {t[0]}")
    assert not bad, bad


def test_rounds_do_not_mix(pool: harness.Pool) -> None:
    pool.run(skewed, 200)


def several(rank: int, world: int) -> list[float]:
    """Many averages are pending at once, waited for in reverse, with a collective between them."""
    import bluefog_pg

    bluefog_pg.set_topology()
    works = []
    for i in range(30):
        x = torch.full((3000,), float(i + rank))
        works.append(bluefog_pg.neighbor_allreduce(x, async_op=True))
        del x
    dist.all_reduce(torch.ones(1))
    for work in reversed(works):
        work.wait()
    near = (rank + (rank - 1) % world + (rank - 2) % world) / 3
    return [abs(w.result()[0][-1].item() - i - near) for i, w in enumerate(works)]


def test_many_pending(pool: harness.Pool) -> None:
    assert max(max(errors) for errors in pool.run(several)) < 1e-4


def within(rank: int, world: int) -> list[Any]:
    """A group has its own topology, in its own numbering."""
    import bluefog_pg

    group = dist.new_group([1, 2, 3])
    bluefog_pg.set_topology()
    if rank == 0:
        return [bluefog_pg.neighbor_allreduce(torch.tensor([0.0])).item()]
    ring = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    bluefog_pg.set_topology(ring, group=group)
    x = torch.tensor([float(rank)])
    inner = bluefog_pg.neighbor_allreduce(x, group=group).item()
    outer = bluefog_pg.neighbor_allreduce(x).item()
    near = [bluefog_pg.in_neighbor_ranks(group), bluefog_pg.out_neighbor_ranks(group)]
    dist.destroy_process_group(group)
    return [outer, inner, *near]


def test_subgroup(pool: harness.Pool) -> None:
    told = pool.run(within)
    assert [t[0] for t in told] == pytest.approx([5 / 3, 4 / 3, 1.0, 2.0], rel=1e-6)
    assert [t[1] for t in told[1:]] == [2.0, 1.5, 2.5]
    assert [t[2:] for t in told[1:]] == [[[2], [1]], [[0], [2]], [[1], [0]]]


def strided(rank: int, world: int) -> None:
    """A layout that is not contiguous is computed right or refused, never garbled."""
    import bluefog_pg

    bluefog_pg.set_topology()
    xs = [oracle.values(torch.float32, 60, 9, r) for r in range(world)]
    src = {(rank - 1) % world: 1 / 3, (rank - 2) % world: 1 / 3}
    want = oracle.neighbor(xs, rank, 1 / 3, src)
    bad = {}
    for layout in ("transposed", "strided"):
        x = xs[rank].view(6, 10).t().contiguous().t()
        if layout == "strided":
            x = torch.stack([x, x], -1)[..., 0]
        try:
            bad[layout] = oracle.differs(bluefog_pg.neighbor_allreduce(x), *want)
        except (ValueError, RuntimeError) as error:
            bad[layout] = "" if "contiguous" in str(error) else str(error)
    assert not any(bad.values()), bad


def test_layouts(pool: harness.Pool) -> None:
    pool.run(strided)


def tiny(rank: int, world: int) -> float:
    """Equal values far below any epsilon come out as they were."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.full((5,), 2.0**-256, dtype=torch.float64)
    return float((bluefog_pg.neighbor_allreduce(x) / 2.0**-256 - 1).abs().max())


def test_tiny_values(pool: harness.Pool) -> None:
    assert max(pool.run(tiny)) < 1e-15


def kept_and_dropped(rank: int, world: int) -> tuple[int, list[bool]]:
    """Return the number of places where results lie, and whether kept results are right.

    Kept results lie each by itself. A dropped one lies where one was before, or where the copy of
    an input was, from which all neighbors read.
    """
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.full((1 << 18,), float(rank))
    near = (rank + (rank - 1) % world + (rank - 2) % world) / 3
    kept = [bluefog_pg.neighbor_allreduce(x * i) for i in range(6)]
    right = [bool(torch.allclose(t, torch.full_like(t, i * near))) for i, t in enumerate(kept)]
    places = {t.data_ptr() for t in kept}
    del kept
    for _ in range(50):
        places.add(bluefog_pg.neighbor_allreduce(x).data_ptr())
    return len(places), right


@harness.of_the_cpus_engine("results' memory is torch's allocator's")
def test_memory_of_dropped_results_is_used_again(pool: harness.Pool) -> None:
    for places, right in pool.run(kept_and_dropped):
        assert places <= 7
        assert right == [True] * 6
