"""All neighbor operations keep means, contract, give equal bits and return new memory."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.support import digraphs, harness, oracle
from tests.support.operations import OPERATIONS, ready_group, tensors

Matrix = np.ndarray[Any, Any]


@st.composite
def doubly_stochastic(draw: st.DrawFn, n: int) -> Matrix:
    """Draw a mean of some permutations, W[i, j] of which j takes of i: all sums are 1."""
    shares = draw(st.lists(st.integers(1, 8), min_size=1, max_size=5))
    matrix = np.zeros((n, n))
    for share in shares:
        matrix[range(n), draw(st.permutations(range(n)))] += share / sum(shares)
    return matrix


def rounds(rank: int, world: int, matrix: Matrix, count: int, dynamic: bool) -> list[Any]:
    """Average so many times, x <- W x, and return x at the beginning and after each round."""
    import bluefog_pg

    graph = nx.from_numpy_array(matrix, create_using=nx.DiGraph)
    bluefog_pg.set_topology(graph, is_weighted=True)
    arguments: dict[str, Any] = {}
    if dynamic:
        to = [j for j in range(world) if matrix[rank, j] and j != rank]
        src = {i: matrix[i, rank] for i in range(world) if matrix[i, rank] and i != rank}
        arguments = {"self_weight": matrix[rank, rank], "src_weights": src, "dst_weights": to}
    x = oracle.values(torch.float64, 50, 7, rank)
    told = [x.numpy()]
    for _ in range(count):
        x = bluefog_pg.neighbor_allreduce(x, **arguments)
        told.append(x.numpy())
    return told


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_mean_stays_and_distances_shrink(pool: harness.Pool, dynamic: bool) -> None:
    """Distances shrink by the second singular value at least, in each round."""

    @digraphs.relaxed
    @given(world=st.integers(1, 4), data=st.data())
    def check(world: int, data: st.DataObject) -> None:
        matrix = data.draw(doubly_stochastic(world))
        count = data.draw(st.integers(1, 8))
        history = np.array(pool.run(rounds, matrix, count, dynamic, world=world)).swapaxes(0, 1)
        mean = history[0].mean(0)
        sigma = [*np.linalg.svd(matrix, compute_uv=False), 0.0][1]
        begin = np.linalg.norm(history[0] - mean)
        for k, xs in enumerate(history):
            assert np.allclose(xs.mean(0), mean, rtol=0, atol=1e-13)
            assert np.linalg.norm(xs - mean) <= sigma**k * begin + 1e-12

    check()


def delayed(rank: int, world: int, seed: int) -> dict[str, list[set[Any]]]:
    """Make each call several times, with other ranks late, and return the bits that there were."""
    pauses = random.Random(100 * seed + rank)
    told: dict[str, list[set[Any]]] = {op: [] for op in OPERATIONS}
    sizes = itertools.product(OPERATIONS, (torch.float32, torch.bfloat16), (999, 100_001))
    with ready_group() as group:
        for op, dtype, n in sizes:
            x = oracle.values(dtype, n, 5, rank)
            bits = set()
            for number in range(6):
                time.sleep(pauses.choice((0, 0.0005, 0.002, 0.005)))
                out = tensors(OPERATIONS[op](x, group, async_op=number % 2 == 1))
                bits.add(tuple(oracle.digest(t) for t in out))
            told[op].append(bits)
    return told


@pytest.mark.slow
def test_the_same_bits_whoever_is_late(pool: harness.Pool) -> None:
    for world in (4, 2):
        first = pool.run(delayed, 1, world=world)
        for told in first:
            counts = {op: [len(bits) for bits in told[op]] for op in told}
            assert counts == {op: [1] * 4 for op in OPERATIONS}
    # These are other processes, and so other addresses.
    assert harness.run_ranks(delayed, 2, 2) == first


def everywhere(rank: int, world: int) -> list[str]:
    """Return digests of the mean of all, which every rank forms by itself."""
    import bluefog_pg

    told = []
    with ready_group() as group:
        bluefog_pg.set_topology(nx.complete_graph(world, nx.DiGraph), group=group)
        weights = {
            "self_weight": 1 / world,
            "src_weights": {r: 1 / world for r in range(world) if r != rank},
        }
        for n, given in itertools.product((5, 999, 100_001), ({}, weights)):
            x = oracle.values(torch.float32, n, 11, rank)
            work = bluefog_pg.neighbor_allreduce(x, **given, group=group, async_op=True)
            told.append(oracle.digest(bluefog_pg.neighbor_allreduce(x, **given, group=group)))
            work.wait()
            told.append(oracle.digest(work.result()[0]))
    return told


def test_a_mean_of_all_has_the_same_bits_everywhere(pool: harness.Pool) -> None:
    told = pool.run(everywhere)
    assert told == [told[0]] * 4


def uniform(rank: int, world: int) -> list[int]:
    """Equal elements stay equal, wherever they lie in a tensor."""
    import bluefog_pg

    bluefog_pg.set_topology()
    arguments = {
        "self_weight": 0.3,
        "src_weights": {(rank - 1) % world: 0.1, (rank - 2) % world: 0.7},
    }
    told = []
    for dtype in oracle.FLOATS:
        for n in (1, 3, 17, 1001, 65_537):
            x = torch.full((n,), 0.7 + rank / 3, dtype=dtype)
            told += [
                len(t.unique())
                for t in (
                    bluefog_pg.neighbor_allreduce(x, **arguments),
                    bluefog_pg.neighbor_allreduce([x[:1], x], **arguments)[1],
                )
            ]
    return told


def test_equal_elements_stay_equal(pool: harness.Pool) -> None:
    assert {count for told in pool.run(uniform) for count in told} == {1}


def memory(rank: int, world: int, op: str) -> None:
    """The input stays, and results are new, whatever the graph, also without neighbors."""
    import bluefog_pg

    bad = []
    with ready_group() as group:
        graphs = [None, nx.empty_graph(world, create_using=nx.DiGraph)]
        loops = nx.DiGraph([(r, r) for r in range(world)])
        for graph, weighted, n, later in itertools.product(
            (*graphs, loops), (False, True), (1, 1000, 70_000), (False, True)
        ):
            bluefog_pg.set_topology(graph, weighted, group)
            x = oracle.values(torch.float32, n, 3, rank)
            kept, case = x.clone(), f"{graph}, {weighted=}, {n=}, {later=}"
            out = tensors(OPERATIONS[op](x, group, async_op=later))
            if not torch.equal(x, kept):
                bad.append(f"{case}: the input was changed")
            for t in out:
                t.fill_(9)
            if not torch.equal(x, kept):
                bad.append(f"{case}: a result lies in the input")
            if oracle.overlap(out):
                bad.append(f"{case}: results lie in each other")
    assert not bad, bad


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("world", [2, 4])
def test_memory(pool: harness.Pool, op: str, world: int) -> None:
    pool.run(memory, op, world=world)


def without_gradients(rank: int, world: int, op: str) -> None:
    """Call under no_grad, in inference mode, or for a Work, though the input wants gradients."""
    told = []
    with ready_group() as group:
        x = oracle.values(torch.float32, 40_000, 3, rank).requires_grad_()
        with torch.no_grad():
            told.append(tensors(OPERATIONS[op](x, group)))
        told.append(tensors(OPERATIONS[op](x, group, async_op=True)))
        told.append(tensors(OPERATIONS[op](x.detach(), group)))
        with torch.inference_mode():
            told.append(tensors(OPERATIONS[op](x, group)))
    flags = [t.requires_grad or t.grad_fn is not None for out in told for t in out]
    assert not any(flags), f"which want gradients: {flags}"
    bad = [oracle.moved(a, b) for out in told for a, b in zip(out, told[2], strict=True)]
    assert not any(bad), bad
    assert x.grad is None, x.grad


@pytest.mark.parametrize("op", OPERATIONS)
def test_no_gradients_unless_asked(pool: harness.Pool, op: str) -> None:
    pool.run(without_gradients, op)
