"""Two ranks average by pair_gossip, whatever the topology says."""

from __future__ import annotations

import random
import time
from typing import Any

import hypothesis.strategies as st
import networkx as nx
import pytest
import torch
from hypothesis import given

from tests.support import digraphs, harness, inrank, oracle
from tests.support.guarded import LAYOUTS, guarded

pytestmark = pytest.mark.gloo

KINDS = (*oracle.FLOATS, *oracle.COMPLEX)
SIZES = (0, 1, 7, 1000, 16_385, 65_537, 100_003)
weights = st.none() | st.tuples(digraphs.weights, digraphs.weights)

CASES = st.fixed_dictionaries(
    {
        "order": st.permutations(range(4)),  # The first two are a pair, and the last two.
        "weights": st.lists(weights, min_size=4, max_size=4),  # each rank's own choice
        "dtype": st.sampled_from(KINDS),
        "n": st.sampled_from(SIZES),
        "layout": st.sampled_from(LAYOUTS),
        "async": st.booleans(),
        "name": st.sampled_from((None, "a")),
        "seed": st.integers(0, 1000),
    }
)


def gossip(rank: int, world: int, case: dict[str, Any]) -> None:
    import bluefog_pg

    bluefog_pg.set_topology(nx.empty_graph(world, create_using=nx.DiGraph))
    peer = case["order"][case["order"].index(rank) ^ 1]
    given_weights, share = {}, (0.5, 0.5)
    if case["weights"][rank] is not None:
        share = case["weights"][rank]
        given_weights = dict(zip(("self_weight", "pair_weight"), share, strict=True))
    xs = [oracle.values(case["dtype"], case["n"], case["seed"], r) for r in range(world)]
    mine = guarded((case["n"],), case["dtype"], case["layout"], xs[rank])
    out = bluefog_pg.pair_gossip(
        mine.tensor, peer, **given_weights, name=case["name"], async_op=case["async"]
    )
    if case["async"]:
        out.wait()
        (out,) = out.result()
    assert not mine.changed(), "the input was changed"
    kind = (out.shape, out.dtype, out.requires_grad)
    assert kind == ((case["n"],), case["dtype"], False), kind
    bad = oracle.differs(out, *oracle.neighbor(xs, rank, share[0], {peer: share[1]}))
    assert not bad, bad


@pytest.mark.slow
@digraphs.relaxed
@given(case=CASES)
def test_pairs(pool: harness.Pool, case: dict[str, Any]) -> None:
    pool.run(gossip, case)


def randomly(rank: int, world: int, steps: int) -> list[Any]:
    """Average a random pair a step, while the others do nothing; ranks run ahead of each other."""
    import bluefog_pg

    pairs, pauses = random.Random(1), random.Random(rank)
    x = oracle.values(torch.float64, 20_001, 1, rank)
    mean = sum(oracle.values(torch.float64, 20_001, 1, r) for r in range(world)) / world
    for step in range(steps):
        pair = pairs.sample(range(world), 2)
        if step % 16 == 0:
            time.sleep(pauses.random() * 0.005)
        if rank in pair:
            x = bluefog_pg.pair_gossip(x, pair[pair[0] == rank])
    return [float((x - mean).abs().max()), oracle.digest(x)]


def test_random_gossip_reaches_the_mean(pool: harness.Pool) -> None:
    first, second = pool.run(randomly, 300), pool.run(randomly, 300)
    assert max(gap for gap, _ in first) < 1e-12
    assert first == second


def alike(rank: int, world: int) -> list[list[int]]:
    """The bits of a mean are the same at both ends, in every kind."""
    import bluefog_pg

    told = []
    for dtype in KINDS:
        x = oracle.values(dtype, 33_333, 2, rank)
        told.append(oracle.digest(bluefog_pg.pair_gossip(x, rank ^ 1)))
    return told


def test_both_get_the_same_bits(pool: harness.Pool) -> None:
    told = pool.run(alike)
    assert told[0] == told[1]
    assert told[2] == told[3]
    assert told[0] != told[2]


def mixed(rank: int, world: int) -> list[float]:
    """Calls of two ranks match in the order issued, and none without a name comes between."""
    import bluefog_pg

    peer = rank ^ 1
    dynamic = {"self_weight": 0.0, "src_weights": {peer: 1.0}, "dst_weights": [peer]}
    works = []
    for i in range(12):
        x = torch.full((40_000 if i % 3 else 3,), float(100 * i + rank))
        calls = [
            lambda x=x: bluefog_pg.pair_gossip(x, peer, name="pairs", async_op=True),
            lambda x=x: bluefog_pg.neighbor_allreduce(x, **dynamic, async_op=True),
        ]
        # Named and unnamed calls match apart from each other, so their order may differ.
        works += [call() for call in (calls if rank % 2 else calls[::-1])][:: 1 if rank % 2 else -1]
    for work in works:
        work.wait()
    return [float(work.result()[0][-1]) for work in works]


@harness.of_the_cpus_engine("calls match by their order alone")
def test_a_name_matches_apart_from_what_has_none(pool: harness.Pool) -> None:
    for rank, got in enumerate(pool.run(mixed)):
        peer = rank ^ 1
        both = [[100 * i + (rank + peer) / 2, 100.0 * i + peer] for i in range(12)]
        assert got == [number for pair in both for number in pair]


def unlike(rank: int, world: int, n: int) -> list[Any]:
    import bluefog_pg

    error = inrank.catch(bluefog_pg.pair_gossip, torch.ones(n + rank), 1 - rank)
    return [error, float(bluefog_pg.pair_gossip(torch.tensor(float(rank)), 1 - rank))]


@harness.of_the_cpus_engine("an error ends the group's calls")
@pytest.mark.parametrize("n", [3, 100_000])
def test_sizes_that_differ(pool: harness.Pool, n: int) -> None:
    for error, mean in pool.run(unlike, n, world=2):
        assert "pair_gossip" in harness.raised(error, "Mismatch", ranks=[0, 1]).text
        assert mean == 0.5


def backward(rank: int, world: int, given_weights: list[Any], dtype: torch.dtype) -> None:
    import bluefog_pg

    shares = [w or (0.5, 0.5) for w in given_weights]
    mine = dict(
        zip(("self_weight", "pair_weight"), given_weights[rank] or (None, None), strict=True)
    )
    x = oracle.values(dtype, 333, 1, rank).requires_grad_()
    cs = [oracle.values(dtype, 333, 2, r) for r in range(2)]
    bluefog_pg.pair_gossip(x, 1 - rank, **mine).backward(cs[rank])
    took = {1 - rank: shares[1 - rank][1]}
    bad = oracle.differs(x.grad, *oracle.neighbor(cs, rank, shares[rank][0], took))
    assert not bad, bad


@digraphs.relaxed
@given(given_weights=st.lists(weights, min_size=2, max_size=2), dtype=st.sampled_from(KINDS))
def test_gradients(pool: harness.Pool, given_weights: list[Any], dtype: torch.dtype) -> None:
    """Each rank weighs for itself what both have."""
    pool.run(backward, given_weights, dtype, world=2)


def of_lists(rank: int, world: int) -> list[Any]:
    """Average a list and, from a tuple, form a weighted sum; at once, later, and backward."""
    import bluefog_pg
    import bluefog_pg.torch as bf

    peer = rank ^ 1
    xs = [
        torch.full((3,), float(rank), requires_grad=True),
        torch.full((2, 2), 10.0 * rank).double(),
    ]
    halves = bluefog_pg.pair_gossip(xs, peer)
    (2 * halves[0].sum()).backward()
    plain = [x.detach() for x in xs]
    work = bluefog_pg.pair_gossip(
        tuple(plain), peer, self_weight=0.0, pair_weight=2.0, async_op=True
    )
    work.wait()
    return [
        [(y.unique().item(), y.shape, y.dtype) for y in ys] for ys in (halves, work.result())
    ] + [
        xs[0].grad.tolist(),
        [y.unique().item() for y in bf.synchronize(bf.pair_gossip_nonblocking(plain, peer))],
    ]


def test_lists(pool: harness.Pool) -> None:
    for rank, (halves, theirs, grad, again) in enumerate(pool.run(of_lists)):
        mean, peer = rank // 2 * 2 + 0.5, rank ^ 1
        kinds = (((3,), torch.float32), ((2, 2), torch.float64))
        assert halves == [(m, *kind) for m, kind in zip((mean, 10 * mean), kinds, strict=True)]
        assert theirs == [(m, *kind) for m, kind in zip((2 * peer, 20 * peer), kinds, strict=True)]
        assert grad == [2.0] * 3
        assert again == [mean, 10 * mean]
