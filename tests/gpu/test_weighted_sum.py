"""The device sums weighted tensors bit for bit as the CPU does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.gpu import kernels
from tests.gpu.kernels import DEVICE, FLOATS, INTEGERS, misaligned, same_bits

pytestmark = kernels.on_cuda
RAGGED = (1, 7, 16, 1003, 40_001)


def values(dtype: torch.dtype, n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype in FLOATS:
        return torch.randn(n, generator=generator, dtype=torch.float64).to(dtype)
    limits = torch.iinfo(dtype)  # An eighth of the limits keeps every weighted sum in range.
    return torch.randint(limits.min // 8, limits.max // 8, (n,), generator=generator, dtype=dtype)


def weights_of(n: int) -> list[float]:
    return [(-1) ** i / (i + 1.7) for i in range(n)]


def on_the_cpu(inputs: Sequence[Tensor], weights: Sequence[float], divisor: float) -> Tensor:
    """Return the sum term after term, where each product is rounded before it is added."""
    dtype = inputs[0].dtype
    is_plain = divisor == 1 and set(weights) == {1}
    if dtype in INTEGERS and is_plain:
        return torch.stack([x.long() for x in inputs]).sum(0).to(dtype)
    wide = torch.float32 if dtype in FLOATS and dtype != torch.float64 else torch.float64
    total = inputs[0].to(wide) * torch.tensor(weights[0], dtype=wide)
    for x, weight in zip(inputs[1:], weights[1:], strict=True):
        total += x.to(wide) * torch.tensor(weight, dtype=wide)
    total = total if divisor == 1 else total / torch.tensor(divisor, dtype=wide)
    return total.to(dtype) if dtype in FLOATS else total.to(torch.int64).to(dtype)


def check(inputs: Sequence[Tensor], weights: Sequence[float], divisor: float) -> None:
    there = [x.to(DEVICE) for x in inputs]
    want = on_the_cpu(inputs, weights, divisor)
    got = kernels.kernels().add(torch.empty_like(there[0]), there, weights, divisor)
    assert same_bits(got, want)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("n", [1, 2, 70, 300])
def test_weighted(dtype: torch.dtype, n: int) -> None:
    for numel in RAGGED:
        inputs = [values(dtype, numel, seed) for seed in range(n)]
        check(inputs, weights_of(n), 1)
        check(inputs, weights_of(n), 3)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("n", [1, 2, 70])
def test_plain(dtype: torch.dtype, n: int) -> None:
    """Integers of many tensors wrap, and those of 64 bits are exact where double is not."""
    inputs = [values(dtype, 1003, seed) for seed in range(n)]
    check(inputs, [1.0] * n, 1)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_misaligned(dtype: torch.dtype) -> None:
    weights = weights_of(3)
    for numel in RAGGED:
        inputs = [values(dtype, numel, seed) for seed in range(3)]
        there = [misaligned(inputs[0]), *(x.to(DEVICE) for x in inputs[1:])]
        want = on_the_cpu(inputs, weights, 1)
        for out in (torch.empty_like(there[1]), misaligned(inputs[2])):
            assert same_bits(kernels.kernels().add(out, there, weights), want)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("n", [2, 70])
def test_in_place(dtype: torch.dtype, n: int) -> None:
    inputs = [values(dtype, 40_001, seed) for seed in range(n)]
    want = on_the_cpu(inputs, weights_of(n), 1)
    for aliased in (0, n - 1):
        there = [x.to(DEVICE, copy=True) for x in inputs]
        assert same_bits(kernels.kernels().add(there[aliased], there, weights_of(n)), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_more_than_the_blocks_take_in_one_turn(dtype: torch.dtype) -> None:
    check([values(dtype, (9 << 20) + 5, seed) for seed in range(2)], [0.3, 0.7], 1)


def test_in_a_graph() -> None:
    """A graph keeps what the launch was told, and reads the tensors anew."""
    inputs = [values(torch.float32, 1003, seed).to(DEVICE) for seed in range(3)]
    out = torch.empty_like(inputs[0])
    api = kernels.kernels()
    api.add(out, inputs, weights_of(3))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert api.given("stream_is_capturing", kernels.stream()) == 1
        assert api.error("stream_wait", kernels.stream()) != 0
        api.add(out, inputs, weights_of(3))
    for x in inputs:
        x.mul_(2)
    graph.replay()
    assert same_bits(out, on_the_cpu([x.cpu() for x in inputs], weights_of(3), 1))
    assert api.given("stream_is_capturing", kernels.stream()) == 0
