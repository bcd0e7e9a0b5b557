"""Messages that the device makes and reads are those of bluefog_pg.optim.compression."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.gpu import kernels
from tests.gpu.kernels import DEVICE, FLOATS, misaligned, same_bits

pytestmark = kernels.on_cuda
RAGGED = (1, 7, 255, 256, 1003, 40_001)
LARGE = 9_000_011  # Each chunk of the device has several tiles.
HALVES = (torch.float16, torch.bfloat16)


def compression() -> Any:
    """Import the compressors.

    That imports torch._dynamo, too slowly for a process that collects tests.
    """
    return importlib.import_module("bluefog_pg.optim.compression")


def values(dtype: torch.dtype, n: int) -> Tensor:
    """Return numbers of many magnitudes."""
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, generator=generator) * torch.logspace(-6, 4, n)
    return x[torch.randperm(n, generator=generator)].to(dtype)


def extremes(dtype: torch.dtype) -> Tensor:
    limits = torch.finfo(dtype)
    ends = [limits.max, -limits.max, limits.tiny, float("inf"), -float("inf"), float("nan"), 0.0]
    return torch.tensor([*ends, 65504.0, 65519.0, 65520.0, 1e-8, -0.0], dtype=dtype)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_cast(source: torch.dtype, dtype: torch.dtype) -> None:
    api = kernels.kernels()
    for n in RAGGED:
        x = values(source, n)
        want = x.to(dtype) if dtype == torch.float64 else x.float().to(dtype)
        assert same_bits(api.converted(x.to(DEVICE), dtype), want)
        assert same_bits(api.converted(misaligned(x), dtype), want)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_cast_saturates(source: torch.dtype, dtype: torch.dtype) -> None:
    x, limits = extremes(source), torch.finfo(dtype)
    wide = x.double() if dtype == torch.float64 else x.float()
    want = wide.clamp(limits.min, limits.max).to(dtype)
    got = kernels.kernels().converted(x.to(DEVICE), dtype).cpu()
    assert torch.equal(got.isnan(), want.isnan())
    assert same_bits(got.nan_to_num(7), want.nan_to_num(7))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("dtype", HALVES)
def test_cast_makes_the_compressors_message(source: torch.dtype, dtype: torch.dtype) -> None:
    x = values(source, 1003)
    message = kernels.kernels().converted(x.to(DEVICE), dtype).view(torch.uint8)
    assert same_bits(message, compression().Cast(dtype).compress(x))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("block", [1, 3, 8, 100, 256, 4096, 4104, 5001])
def test_int8(dtype: torch.dtype, block: int) -> None:
    api, compressor = kernels.kernels(), compression().Int8(block)
    for n in RAGGED:
        x = values(dtype, n)
        x[n // 3 : n // 2] = 0
        want = compressor.compress(x)
        message = api.quantized(x.to(DEVICE), block)
        assert same_bits(message, want)
        assert same_bits(api.quantized(misaligned(x), block), want)
        back = api.dequantized(message, x.to(DEVICE), block)
        assert same_bits(back, compressor.decompress(want, x))
        back = api.dequantized(message, misaligned(x), block)
        assert same_bits(back, compressor.decompress(want, x))


def test_int8_of_what_is_almost_nothing() -> None:
    x = torch.full((512,), 1e-44)
    x[256:] = 3e-38
    assert same_bits(
        kernels.kernels().quantized(x.to(DEVICE), 256), compression().Int8().compress(x)
    )


def test_int8_rounds_halves_to_even() -> None:
    x = torch.arange(-127, 128) / 2
    x[0] = 127.0
    assert same_bits(
        kernels.kernels().quantized(x.to(DEVICE), 255), compression().Int8(255).compress(x)
    )


def chosen_of(x: Tensor) -> Callable[[int], Tensor]:
    """Return a function of k that makes the message of the k largest numbers, with places in order.

    Where magnitudes are equal, the first numbers are taken.
    """
    by_magnitude = x.abs().sort(descending=True, stable=True).indices

    def chosen(k: int) -> Tensor:
        places = by_magnitude[:k].sort().values
        return torch.cat([places.int().view(torch.uint8), x[places].float().view(torch.uint8)])

    return chosen


def counts_of(n: int) -> list[int]:
    return sorted({1, -(-n // 100), -(-n // 3), n})


@pytest.mark.parametrize("dtype", FLOATS)
def test_top_k(dtype: torch.dtype) -> None:
    api = kernels.kernels()
    for n in (*RAGGED, LARGE):
        x = values(dtype, n)
        chosen = chosen_of(x)
        for k in counts_of(n):
            message, want = api.largest(x.to(DEVICE), k), chosen(k)
            assert same_bits(message, want)
            assert same_bits(api.largest(misaligned(x), k), want)
            sparse = compression().TopK(1.0).decompress(want, x)
            assert same_bits(api.scattered(message, x.to(DEVICE)), sparse)


@pytest.mark.parametrize("dtype", FLOATS)
def test_top_k_of_equal_magnitudes(dtype: torch.dtype) -> None:
    api = kernels.kernels()
    few = (torch.arange(RAGGED[-1]) * 7919 % 5 - 2).to(dtype)
    for x in (few, torch.zeros(5000, dtype=dtype), torch.full((2049,), -1.5, dtype=dtype)):
        chosen = chosen_of(x)
        for k in counts_of(len(x)):
            assert same_bits(api.largest(x.to(DEVICE), k), chosen(k))


def test_top_k_takes_what_is_no_number_first() -> None:
    x = values(torch.float32, 1003)
    x[[5, 900]] = float("nan")
    x[77] = -float("inf")
    places = kernels.kernels().largest(x.to(DEVICE), 3)[:12].view(torch.int32)
    assert places.tolist() == [5, 77, 900]


@pytest.mark.parametrize("dtype", FLOATS)
def test_top_k_as_the_compressor(dtype: torch.dtype) -> None:
    """Kernel and compressor take the same of numbers with distinct magnitudes."""
    n = 200
    x = ((torch.randperm(n, generator=torch.Generator().manual_seed(1)) + 1) / 4).to(dtype)
    x[::2] *= -1
    compressor = compression().TopK(0.1)
    want = compressor.decompress(compressor.compress(x), x)
    message = kernels.kernels().largest(x.to(DEVICE), 20)
    assert same_bits(compressor.decompress(message.cpu(), x), want)


def test_scatter_ignores_places_that_are_none() -> None:
    places = torch.tensor([-1, 3, 10, 2**31 - 1], dtype=torch.int32)
    message = torch.cat([places.view(torch.uint8), torch.ones(4).view(torch.uint8)])
    got = kernels.kernels().scattered(message.to(DEVICE), torch.empty(10, device=DEVICE))
    assert got.nonzero().tolist() == [[3]]


def test_in_a_graph() -> None:
    api = kernels.kernels()
    x = values(torch.float32, 40_001).to(DEVICE)
    api.scattered(api.largest(x, 400), x)
    api.dequantized(api.quantized(x, 256), x, 256)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        largest = api.largest(x, 400)
        sparse = api.scattered(largest, x)
        rounded = api.dequantized(api.quantized(x, 256), x, 256)
        half = api.converted(x, torch.float16)
    x.copy_(x.flip(0))
    graph.replay()
    here = x.cpu()
    want = chosen_of(here)(400)
    assert same_bits(largest, want)
    assert same_bits(sparse, compression().TopK(1.0).decompress(want, here))
    assert same_bits(
        rounded, compression().Int8().decompress(compression().Int8().compress(here), here)
    )
    assert same_bits(half, here.half())
