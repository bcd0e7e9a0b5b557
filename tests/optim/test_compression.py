"""Compressed exchanges: what a message says, how large it is, and where training ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support import harness
from tests.support.optimizers import gathered, vector

pytestmark = harness.only_bluefog

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
    """Without gradients: how far ranks are from the mean, of what they were; bytes of a step."""
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
