"""The operations of bluefog_pg.torch give what plain computations give."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import harness, inrank, oracle
from tests.support.facade import ROWS, WORLDS, values


def finished(bf: Any, handle: int) -> Tensor:
    result: Tensor = bf.synchronize(handle)
    assert inrank.catch(bf.poll, handle).kind == "ValueError"
    return result


def reduced(rank: int, world: int) -> None:
    """Reduce every type: blocking or not, in place or not, of 0 dimensions or not contiguous."""
    import bluefog_pg.torch as bf

    bad = []
    for dtype in oracle.REDUCIBLE:
        has_mean = dtype.is_floating_point or dtype.is_complex
        for average in (False, True) if has_mean else (False,):
            for shape in ((), (0,), (4, 3)):
                xs = [values(r, dtype, shape) for r in range(world)]
                want, error = oracle.reduce(xs, "AVG" if average else "SUM")
                mine = (
                    xs[rank].clone().t().contiguous().t() if len(shape) == 2 else xs[rank].clone()
                )
                got = {
                    "allreduce": bf.allreduce(mine, average),
                    "nonblocking": finished(bf, bf.allreduce_nonblocking(mine, average)),
                    "async": finished(bf, bf.allreduce_async(mine, average, "name")),
                }
                if not torch.equal(mine, xs[rank]):
                    bad.append(f"{dtype} {shape}: the input was changed")
                for blocking in (True, False):
                    place = mine.clone(memory_format=torch.preserve_format)
                    result = (
                        bf.allreduce_(place, average)
                        if blocking
                        else bf.synchronize(bf.allreduce_nonblocking_(place, average))
                    )
                    assert result is place
                    got[f"in place, {blocking=}"] = place
                for how, tensor in got.items():
                    assert (tensor.shape, tensor.dtype) == (mine.shape, mine.dtype), how
                    told = oracle.differs(tensor, want, error)
                    bad += [f"{how} {dtype} {shape} {average=}: {told}"] if told else []
    assert not bad, bad


@pytest.mark.parametrize("world", WORLDS)
def test_allreduce(pool: harness.Pool, world: int) -> None:
    pool.run(reduced, world=world)


def spread(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf

    bad = []
    for number, dtype in enumerate(oracle.MOVABLE):
        root = number % world
        mine, want = (oracle.bits(dtype, 7, r) for r in (rank, root))
        before = mine.clone()
        got = {
            "broadcast": bf.broadcast(mine, root),
            "nonblocking": finished(bf, bf.broadcast_nonblocking(mine, root, "name")),
            "async": finished(bf, bf.broadcast_async(mine, root)),
        }
        bad += [f"{dtype}: the input was changed"] if oracle.moved(mine, before) else []
        place, other, third = mine.clone(), mine.clone(), mine.clone()
        assert bf.broadcast_(place, root) is place
        assert bf.synchronize(bf.broadcast_nonblocking_(other, root)) is other
        assert bf.wait(bf.broadcast_async_(third, root)) is third
        got |= {"in place": place, "in place, nonblocking": other, "in place, async": third}
        told = {how: oracle.moved(tensor, want) for how, tensor in got.items()}
        bad += [f"{how} {dtype}: {what}" for how, what in told.items() if what]
    assert bf.broadcast_object({"of": rank}, src=world - 1) == {"of": world - 1}
    things = [rank, "x" * rank]
    bf.broadcast_object_list(things)
    assert things == [0, ""]
    assert not bad, bad


@pytest.mark.parametrize("world", WORLDS)
def test_broadcast(pool: harness.Pool, world: int) -> None:
    pool.run(spread, world=world)


def gathered(rank: int, world: int) -> None:
    """Gather different numbers of rows from ranks, some of which have none."""
    import bluefog_pg.torch as bf

    bad = []
    for dtype in oracle.MOVABLE:
        for row in ((), (5,), (2, 3)):
            xs = [values_of_bits(dtype, (ROWS[r], *row), r) for r in range(world)]
            mine = xs[rank] if row != (5,) else xs[rank].t().contiguous().t()
            handles = [bf.allgather_nonblocking(mine, name="a"), bf.allgather_async(mine, "b")]
            for got in (bf.allgather(mine), *(finished(bf, handle) for handle in handles)):
                told = oracle.moved(got, torch.cat(xs))
                bad += [f"{dtype} {row}: {told}"] if told or got.shape[1:] != row else []
    assert not bad, bad


def values_of_bits(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> Tensor:
    return oracle.bits(dtype, torch.Size(shape).numel(), 5, rank).view(shape)


@pytest.mark.parametrize("world", WORLDS)
def test_allgather(pool: harness.Pool, world: int) -> None:
    pool.run(gathered, world=world)


def between_neighbors(rank: int, world: int) -> None:
    """The arguments reach bluefog_pg. Other tests look at the operations themselves."""
    import bluefog_pg.torch as bf

    bf.init(bf.RingGraph)
    left, right = (rank - 1) % world, (rank + 1) % world
    xs = [values(r, torch.float64, (3, 2)) for r in range(world)]
    x = xs[rank]

    def mean(own: float, weights: dict[int, float], scale: float = 1.0) -> Tensor:
        return own * x + sum(scale * w * xs[r] for r, w in weights.items())

    static = {"self_weight": 0.5, "src_weights": {left: 0.25}}
    dynamic = {"self_weight": 0.5, "src_weights": {left: 0.5}, "dst_weights": {right: 3.0}}
    pair = rank ^ 1
    ranks = {"src_ranks": [right, left], "dst_ranks": [left, right]}
    third = 1 / 3
    got = {
        "static": (bf.neighbor_allreduce(x), mean(third, {left: third, right: third})),
        "weights": (bf.neighbor_allreduce(x, **static), mean(0.5, {left: 0.25})),
        "dynamic": (bf.neighbor_allreduce(x, **dynamic, name="x"), mean(0.5, {left: 0.5}, 3.0)),
        "nonblocking": (
            finished(bf, bf.neighbor_allreduce_nonblocking(x, **dynamic)),
            mean(0.5, {left: 0.5}, 3.0),
        ),
        "async": (
            finished(bf, bf.neighbor_allreduce_async(x, 0.5, {left: 0.25}, "x")),
            mean(0.5, {left: 0.25}),
        ),
        "gather": (bf.neighbor_allgather(x), torch.cat([xs[r] for r in sorted((left, right))])),
        "gather in order": (bf.neighbor_allgather(x, **ranks), torch.cat([xs[right], xs[left]])),
        "gather, nonblocking": (
            finished(bf, bf.neighbor_allgather_nonblocking(x, **ranks)),
            torch.cat([xs[right], xs[left]]),
        ),
        "gather, async": (
            finished(bf, bf.neighbor_allgather_async(x, "x")),
            torch.cat([xs[r] for r in sorted((left, right))]),
        ),
        "gossip": (bf.pair_gossip(x, pair), mean(0.5, {pair: 0.5})),
        "gossip, nonblocking": (
            finished(bf, bf.pair_gossip_nonblocking(x, pair, 0.25, 0.5, "x")),
            mean(0.25, {pair: 0.5}),
        ),
    }
    bad = {
        what: f"{have}, not {want}"
        for what, (have, want) in got.items()
        if not have.allclose(want, rtol=1e-14)
    }
    assert not bad, bad


def test_neighbor_operations(pool: harness.Pool) -> None:
    pool.run(between_neighbors)


def on_machines(rank: int, world: int, each: int) -> None:
    """Reduce on machines of `each` ranks. The last machine has the ranks that are left."""
    import bluefog_pg.torch as bf

    bf.shutdown()
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = str(each)
    bf.init()
    first = rank // each * each
    locals_ = range(first, min(first + each, world))
    assert (bf.local_size(), bf.local_rank()) == (len(locals_), rank - first)
    bad = []
    for dtype in oracle.REDUCIBLE:
        average = dtype.is_floating_point
        xs = [values(r, dtype, (2, 3)) for r in range(world)]
        near = [xs[r] for r in locals_]
        want, error = oracle.reduce(near, "AVG" if average else "SUM")
        place = xs[rank].clone()
        got = {
            "blocking": bf.allreduce(xs[rank], average, True),
            "nonblocking": finished(bf, bf.allreduce_nonblocking(xs[rank], average, True)),
            "in place": bf.allreduce_(place, average, is_hierarchical_local=True),
        }
        told = {how: oracle.differs(tensor, want, error) for how, tensor in got.items()}
        bad += [f"{how} {dtype}: {what}" for how, what in told.items() if what]
    x = torch.full((2,), float(rank), requires_grad=True)
    (bf.allreduce(x, False, True) * (rank + 1)).sum().backward()
    if x.grad.tolist() != [float(sum(r + 1 for r in locals_))] * 2:
        bad.append(f"gradient {x.grad}")
    if bf.is_homogeneous():
        bf.set_machine_topology(bf.FullyConnectedGraph(bf.machine_size()))
        mean = torch.tensor([(world - 1) / 2])
        x = torch.tensor([float(rank)])
        handle = bf.hierarchical_neighbor_allreduce_nonblocking(x, name="x")
        for have in (bf.hierarchical_neighbor_allreduce(x), finished(bf, handle)):
            bad += [] if have.allclose(mean) else [f"hierarchical: {have}"]
    bf.shutdown()
    del os.environ["BLUEFOG_NODES_PER_MACHINE"]
    inrank.init(f"machines of {each}", rank, world)  # The pool expects a group.
    assert not bad, bad


@pytest.mark.parametrize("each", [2, 3])
def test_machines(pool: harness.Pool, each: int) -> None:
    pool.run(on_machines, each)
