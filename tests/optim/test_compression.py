"""Compressed exchanges have messages of the right content and size, and training ends well."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
import torch
from torch import Tensor, nn

from tests.support import harness
from tests.support.one_weight import sgd
from tests.support.optimizers import (
    STEPS,
    Reference,
    assert_at,
    gathered,
    matrices,
    step,
    vector,
    wrapped,
)

SIZE = 1000


def compressors() -> dict[str, Any]:
    from bluefog_pg import optim

    return {
        "fp16": optim.Cast(torch.float16),
        "bf16": optim.Cast(torch.bfloat16),
        "int8": optim.Int8(64),
        "top-k": optim.TopK(0.1),
        "random-k": optim.RandomK(0.1),
    }


BYTES = {"fp16": 2 * SIZE, "bf16": 2 * SIZE, "int8": 16 * (4 + 64), "top-k": 800, "random-k": 408}


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_messages(kind: str, dtype: torch.dtype) -> None:
    compressor = compressors()[kind]
    x = torch.randn(SIZE, generator=torch.Generator().manual_seed(0), dtype=dtype)
    message = compressor.compress(x)
    assert (message.dtype, message.numel()) == (torch.uint8, BYTES[kind])
    got = compressor.decompress(message, x)
    assert (got.dtype, got.shape) == (dtype, x.shape)
    if kind == "top-k":
        kept = x.abs() >= x.abs().sort().values[-100]
        assert torch.allclose(got, torch.where(kept, x, 0), atol=1e-6)
    elif kind == "random-k":
        kept = got != 0
        assert kept.sum() == 100
        assert torch.allclose(got[kept], x[kept], atol=1e-6)
        again = compressor.decompress(compressor.compress(x), x)
        assert not torch.equal(again != 0, kept)
    else:
        limit = {"fp16": 2**-11, "bf16": 2**-8}.get(kind)
        error = (got - x).abs()
        assert (error <= (x.abs() * limit if limit else x.abs().max() / 254 + 1e-6)).all()


@pytest.mark.parametrize("gamma", [0.0, 5.0, float("nan")])
def test_steps_that_never_arrive_are_refused(gamma: float) -> None:
    from bluefog_pg import optim

    with pytest.raises(ValueError, match="gamma must be in"):
        optim.TopK(0.1, gamma=gamma)


def test_messages_of_zeros_and_of_one_number() -> None:
    for compressor in compressors().values():
        for x in (torch.zeros(SIZE), torch.tensor([2.0])):
            assert torch.equal(compressor.decompress(compressor.compress(x), x), x)


def agreed(rank: int, world: int, kind: str, topology: str) -> list[float]:
    """Return how far ranks end from the mean, without gradients, and the bytes of a step.

    The distance is a part of what it was, and the bytes are in units of a message.
    """
    import bluefog_pg

    torch.manual_seed(rank)
    model = nn.Linear(SIZE, 1, bias=False).double()
    start = gathered(vector(model))
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0),
        model,
        topology=topology,
        compression=compressors()[kind],
    )
    sent = bluefog_pg.stats()["bytes_sent"]
    for _ in range(200):
        model(torch.ones(1, SIZE).double()).sum().backward()
        optimizer.step()
    sent = bluefog_pg.stats()["bytes_sent"] - sent
    end = gathered(vector(model))
    spread = (end - start.mean(0)).norm() / (start - start.mean(0)).norm()
    return [float(spread), sent / 200 / (2 if topology == "ring" else 1) / BYTES[kind]]


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["ring", "one-peer-exp2"])
@pytest.mark.parametrize("kind", BYTES)
def test_errors_are_made_up_for(pool: harness.Pool, kind: str, topology: str) -> None:
    for spread, sent in pool.run(agreed, kind, topology):
        assert spread < (0.3 if kind == "random-k" else 1e-4)
        assert 1 <= sent < 1.2


def test_places_beyond_int32_are_refused() -> None:
    from bluefog_pg import optim

    with pytest.raises(ValueError, match="2147483648 numbers"):
        optim.TopK(0.1).compress(torch.empty(1 << 31, device="meta"))


class HalfWay:
    """A HalfWay compressor sends all, and goes half of the way to the average."""

    gamma = 0.5

    def __init__(self) -> None:
        self.compressed = 0

    def compress(self, tensor: Tensor) -> Tensor:
        self.compressed += 1
        return tensor.clone().view(torch.uint8)

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        return message.view(like.dtype)


def by_own_compressor(rank: int, world: int, order: str) -> None:
    compressor = HalfWay()
    model, optimizer = wrapped(rank, topology="ring", order=order, compression=compressor)
    reference = Reference(world, "sgd")
    share = (torch.eye(world, dtype=torch.float64) + next(matrices("ring", world))) / 2
    for number in range(STEPS):
        step(model, optimizer, rank, number)
        reference.differentiate(number)
        reference.combine(order, share)
    assert_at(model, reference.vectors()[rank])
    assert compressor.compressed == STEPS, f"compressed {compressor.compressed} times"


@pytest.mark.parametrize("order", ["awc", "atc"])
def test_a_compressor_of_ones_own(pool: harness.Pool, order: str) -> None:
    pool.run(by_own_compressor, order)


def where_routes_repeat(rank: int, world: int, kind: str) -> None:
    """Routes that repeat for one rank and not for another end as without compression."""
    import bluefog_pg
    from bluefog_pg import optim

    links = [[(0, 1), (2, 3)], [(0, 1), (1, 2), (2, 3)]]
    graphs = []
    for pairs in links:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(world))
        graph.add_edges_from(pairs + [(b, a) for a, b in pairs])
        graphs.append(graph)
    ends = []
    for compression in (None, optim.TopK(1.0) if kind == "all" else kind):
        model = nn.Linear(3, 1, bias=False).double()
        nn.init.constant_(model.weight, float(rank**2))
        optimizer = bluefog_pg.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.0),
            model,
            topology=graphs,
            compression=compression,
        )
        for _ in range(40 if kind != "all" else 4):
            model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
            optimizer.step()
        ends.append(vector(model))
        optimizer.close()
    assert_at(model, ends[0], within=1e-2 if kind == "bf16" else 1e-5)


@pytest.mark.parametrize("kind", ["all", "bf16"])
def test_compression_where_routes_repeat(pool: harness.Pool, kind: str) -> None:
    pool.run(where_routes_repeat, kind)


HUGE: dict[str, tuple[str, torch.dtype, float]] = {
    "fp16 of bfloat16": ("fp16", torch.bfloat16, 1e6),
    "bf16 of float16": ("bf16", torch.float16, 6e4),
    "int8": ("int8", torch.float64, 1e39),
    "top-k": ("TopK", torch.float64, 1e39),
}


def too_large(rank: int, _world: int, kind: str) -> None:
    """A number that diverges for one step leaves nothing behind when all have good ones again."""
    import bluefog_pg

    name, dtype, value = HUGE[kind]
    compression = getattr(bluefog_pg.optim, name)(1.0) if name[0].isupper() else name
    model = nn.Linear(4, 1, bias=False).to(dtype)
    good = {"weight": torch.full((1, 4), 1.5, dtype=dtype)}
    model.load_state_dict(good)
    optimizer = bluefog_pg.DistributedOptimizer(
        sgd(model, 0.0), model, topology="full", compression=compression
    )

    def train() -> None:
        model(torch.ones(1, 4, dtype=dtype)).sum().backward()
        optimizer.step()

    train()
    if rank == 0:
        with torch.no_grad():
            model.weight[0, 0] = value
    train()
    model.load_state_dict(good)
    for _ in range(5):
        train()
        model.load_state_dict(good)
    train()
    optimizer.close()
    assert_at(model, 1.5, within=1e-2)


@pytest.mark.parametrize("kind", HUGE)
def test_copies_outlive_what_is_too_large(pool: harness.Pool, kind: str) -> None:
    pool.run(too_large, kind)
