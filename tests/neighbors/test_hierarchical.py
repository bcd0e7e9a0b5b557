"""hierarchical_neighbor_allreduce averages machines' means, in equal bits on each machine."""

from __future__ import annotations

import random
import time
from typing import Any

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from tests.support import digraphs, harness, inrank, oracle
from tests.support.guarded import LAYOUTS, guarded
from tests.support.operations import group_of_machines

pytestmark = pytest.mark.gloo

RANKS = 6
GRIDS = ((2, 2), (3, 2), (2, 3))  # numbers of machines, and of each one's ranks
KINDS = (*oracle.FLOATS, *oracle.COMPLEX)
SIZES = (0, 1, 2, 5, 1000, 40_001, 200_003)
Spec = dict[str, Any]


@st.composite
def cases(draw: st.DrawFn) -> Spec:
    machines, each = draw(st.sampled_from(GRIDS))
    edges = draw(digraphs.edges(machines))
    return {
        "machines": machines,
        "each": each,
        "edges": edges,
        "mode": draw(st.sampled_from(("uniform", "weighted", "explicit"))),
        # An explicit call leaves out these edges of the topology, and senders scale with these
        # weights.
        "unused": draw(st.sets(st.sampled_from(sorted(edges)))) if edges else set(),
        "scale": draw(st.lists(st.none() | digraphs.weights, min_size=3, max_size=3)),
        "dtype": draw(st.sampled_from(KINDS)),
        "n": draw(st.sampled_from(SIZES)),
        "layout": draw(st.sampled_from(LAYOUTS)),
        "async": draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
    }


def plan(spec: Spec, machine: int) -> tuple[dict[str, Any], dict[int, float]]:
    """Return the arguments of this machine's ranks, and what machines' means count for them."""
    graph = spec["edges"]
    src = digraphs.sources(graph, machine)
    own = graph.get((machine, machine), 0.0)
    if spec["mode"] == "uniform":
        share = 1 / (len(src) + 1)
        return {}, dict.fromkeys([machine, *src], share)
    if spec["mode"] == "weighted":
        return {}, {machine: own, **src}
    used = {e: w for e, w in graph.items() if e not in spec["unused"]}
    src, to = digraphs.sources(used, machine), digraphs.destinations(used, machine)
    scale = spec["scale"]
    arguments = {
        "self_weight": own,
        "src_machine_weights": src,
        "dst_machine_weights": to if scale[machine] is None else dict.fromkeys(to, scale[machine]),
    }
    took = {k: w * (1.0 if scale[k] is None else scale[k]) for k, w in src.items()}
    return arguments, {machine: own, **took}


def expected(spec: Spec, row: dict[int, float]) -> tuple[Any, Any]:
    """Return the result, and the error allowed: half types round after each of the two sums."""
    each, dtype = spec["each"], spec["dtype"]
    want, error = 0.0, 0.0
    for k, weight in row.items():
        xs = [oracle.values(dtype, spec["n"], spec["seed"], k * each + i) for i in range(each)]
        others = dict.fromkeys(range(1, each), 1 / each)
        mean, off = oracle.neighbor(xs, 0, 1 / each, others)
        want, error = want + weight * mean, error + abs(weight) * off
    want, most = np.asarray(want), np.abs(want) + error
    return want, error + oracle.rounding(most, most, len(row) + 3, dtype.to_real())


def average(rank: int, world: int, spec: Spec) -> int:
    """Return the digest of a result that is right."""
    import bluefog_pg

    machine = rank // spec["each"]
    arguments, row = plan(spec, machine)
    graph = digraphs.digraph({"world": spec["machines"], "edges": spec["edges"]})
    x = oracle.values(spec["dtype"], spec["n"], spec["seed"], rank)
    mine = guarded((spec["n"],), spec["dtype"], spec["layout"], x)
    with group_of_machines(spec["each"]) as group:
        bluefog_pg.set_machine_topology(graph, spec["mode"] == "weighted", group)
        out = bluefog_pg.hierarchical_neighbor_allreduce(
            mine.tensor, **arguments, group=group, async_op=spec["async"]
        )
        if spec["async"]:
            out.wait()
            (out,) = out.result()
    assert not mine.changed(), "the input was changed"
    kind = (out.shape, out.dtype, out.requires_grad)
    assert kind == (x.shape, x.dtype, False), kind
    bad = oracle.differs(out, *expected(spec, row))
    assert not bad, bad
    return oracle.digest(out)


@pytest.mark.slow
@settings(digraphs.relaxed, max_examples=80)
@given(spec=cases())
def test_random_machines(pool: harness.Pool, spec: Spec) -> None:
    told = pool.run(average, spec, world=spec["machines"] * spec["each"])
    each = spec["each"]
    of_machine = [set(told[i : i + each]) for i in range(0, len(told), each)]
    assert [len(bits) for bits in of_machine] == [1] * spec["machines"]


def late(rank: int, world: int, each: int) -> list[set[int]]:
    """Return, for each kind, the bits of results, which must be the same whoever is late."""
    import bluefog_pg

    pauses = random.Random(rank)
    told = []
    with group_of_machines(each) as group:
        ring = bluefog_pg.topology_util.RingGraph(world // each)
        bluefog_pg.set_machine_topology(ring, group=group)
        for dtype in (torch.float32, torch.bfloat16):
            x = oracle.values(dtype, 150_001, 3, rank)
            bits = set()
            for _ in range(8):
                time.sleep(pauses.random() * 0.004)
                bits.add(oracle.digest(bluefog_pg.hierarchical_neighbor_allreduce(x, group=group)))
            told.append(bits)
    return told


@pytest.mark.parametrize("each", [2, 3])
def test_equal_bits_on_a_machine_and_each_time(pool: harness.Pool, each: int) -> None:
    told = pool.run(late, each)
    for rank, bits in enumerate(told):
        assert [len(b) for b in bits] == [1, 1]
        assert bits == told[rank - rank % each]


def sent(rank: int, world: int, each: int, n: int) -> list[int]:
    """Return the bytes sent with two machines to send to, and with none."""
    import bluefog_pg

    told = []
    with group_of_machines(each) as group:
        for graph in (nx.complete_graph(3, nx.DiGraph), nx.empty_graph(3, nx.DiGraph)):
            bluefog_pg.set_machine_topology(graph, group=group)
            before = bluefog_pg.stats(group)["bytes_sent"]
            bluefog_pg.hierarchical_neighbor_allreduce(torch.ones(n), group=group)
            told.append(bluefog_pg.stats(group)["bytes_sent"] - before)
    return told


@pytest.mark.slow
@harness.of_the_cpus_engine("the ranks also tell each other what they call")
def test_what_crosses_between_machines_does_so_once(pool: harness.Pool) -> None:
    n = 120_000
    for crossing, inside in pool.run(sent, 2, n):
        assert inside == 2 * 4 * n // 2  # half of the tensor to be summed, and half of the result
        assert crossing - inside == 2 * 4 * n // 2  # half of it, to each of the two machines


def by_name(rank: int, world: int) -> list[float]:
    """Start several averages at once, in another order on each rank, beside a plain one."""
    import bluefog_pg

    names = ["a", "b", "c", "d"]
    with group_of_machines(2) as group:
        bluefog_pg.set_topology(group=group)
        bluefog_pg.set_machine_topology(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), group=group)
        random.Random(rank).shuffle(names)
        works = {
            name: bluefog_pg.hierarchical_neighbor_allreduce(
                torch.full((50_000,), float(rank + 10 * ord(name))),
                name=name,
                group=group,
                async_op=True,
            )
            for name in names
        }
        bluefog_pg.neighbor_allreduce(torch.ones(50_000), group=group)
        for work in works.values():
            work.wait()
        return [float(works[name].result()[0][-1]) - 10 * ord(name) for name in sorted(works)]


@harness.of_the_cpus_engine("calls match by their order alone")
def test_names_at_once(pool: harness.Pool) -> None:
    means = [0.5, 2.5, 4.5]
    for rank, got in enumerate(pool.run(by_name)):
        machine = rank // 2
        assert got == pytest.approx([(means[machine] + means[machine - 1]) / 2] * 4)


def unlike(rank: int, world: int, n: int) -> tuple[inrank.Raised | None, float]:
    import bluefog_pg

    with group_of_machines(2) as group:
        bluefog_pg.set_machine_topology(nx.complete_graph(2, nx.DiGraph), group=group)
        x = torch.ones(n + (rank == 3))
        error = inrank.catch(bluefog_pg.hierarchical_neighbor_allreduce, x, group=group)
        mean = bluefog_pg.neighbor_allreduce(torch.full((2,), float(rank)))
        return error, float(mean[0])


@harness.of_the_cpus_engine("an error ends the group's calls")
@pytest.mark.parametrize("n", [8, 200_000])
def test_sizes_that_differ(pool: harness.Pool, n: int) -> None:
    """A rank that shares a machine with the odd one, or its place, hears of it."""
    told = pool.run(unlike, n, world=4)
    for rank in (2, 3):
        error = harness.raised(told[rank][0], "Mismatch")
        assert "hierarchical_neighbor_allreduce" in error.text
        assert error.ranks and 3 in error.ranks
    for error, _ in told[:2]:
        harness.raised(error, "DistBackendError")
    assert [mean for _, mean in told] == pytest.approx([5 / 3, 4 / 3, 1.0, 2.0])


def backward(rank: int, world: int, edges: digraphs.Edges, weighted: bool) -> None:
    import bluefog_pg

    machine = rank // 2
    spec = {"edges": edges, "mode": "weighted" if weighted else "uniform", "world": 2}
    x = oracle.values(torch.float64, 5001, 1, rank).requires_grad_()
    cs = [oracle.values(torch.float64, 5001, 2, r) for r in range(4)]
    with group_of_machines(2) as group:
        bluefog_pg.set_machine_topology(digraphs.digraph(spec), weighted, group)
        y = bluefog_pg.hierarchical_neighbor_allreduce(x, group=group)
        y.backward(cs[rank])
    to_own = digraphs.row(spec, machine)[0]
    to_other = digraphs.row(spec, 1 - machine)[1].get(machine, 0.0)
    share = {r: (to_own if r // 2 == machine else to_other) / 2 for r in range(4)}
    bad = oracle.differs(x.grad, *oracle.neighbor(cs, rank, share.pop(rank), share))
    assert not bad, bad


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients(pool: harness.Pool, weighted: bool) -> None:
    @digraphs.relaxed
    @given(edges=digraphs.edges(2))
    def check(edges: digraphs.Edges) -> None:
        pool.run(backward, edges, weighted, world=4)

    check()
