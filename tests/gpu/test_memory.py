"""These tests use memory of the device and of the host, copies, and streams."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from ctypes import byref, c_void_p

import pytest
import torch

from tests.gpu import kernels
from tests.gpu.kernels import DEVICE

pytestmark = kernels.on_cuda
BYTES = 3_000_001


@pytest.fixture
def api() -> Iterator[kernels.Kernels]:
    yield kernels.kernels()
    if DEVICE == "cuda":
        torch.cuda.synchronize()  # No error is left for other tests.


def bytes_of(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (BYTES,), generator=generator, dtype=torch.uint8)


def test_copies_from_anywhere_to_anywhere(api: kernels.Kernels) -> None:
    here, there = bytes_of(1), torch.empty(BYTES, dtype=torch.uint8, device=DEVICE)
    back = torch.empty_like(here)
    device, host = api.given_first("allocate", BYTES), api.given_first("allocate_host", BYTES)
    way = (here.data_ptr(), host, device, there.data_ptr(), host, back.data_ptr())
    for source, to in itertools.pairwise(way):
        api.copy(to, source, BYTES, kernels.stream())
    api.stream_wait(kernels.stream())
    assert torch.equal(back, here)
    assert torch.equal(there.cpu(), here)
    api.release(device)
    api.release_host(host)


def test_zero(api: kernels.Kernels) -> None:
    x = bytes_of(2).to(DEVICE)
    api.zero(x[1:].data_ptr(), 1001, kernels.stream())
    assert x[1:1002].count_nonzero().item() == 0
    assert torch.equal(x[1002:].cpu(), bytes_of(2)[1002:])


def test_streams_of_its_own(api: kernels.Kernels) -> None:
    """A stream of the library waits for what it was given, and not for torch's stream."""
    stream = api.given("stream_create")
    x, out = bytes_of(3).to(DEVICE), torch.zeros(BYTES, dtype=torch.uint8, device=DEVICE)
    torch.cuda.synchronize()
    torch.cuda._sleep(400_000_000)  # This takes a fifth of a second.
    api.copy(out.data_ptr(), x.data_ptr(), BYTES, stream)
    api.stream_wait(stream)
    assert not torch.cuda.current_stream().query()
    assert torch.equal(out.cpu(), bytes_of(3))
    assert api.given("stream_is_capturing", stream) == 0
    api.stream_destroy(stream)


def test_allocates_while_another_stream_is_captured(api: kernels.Kernels) -> None:
    x = torch.ones(8, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
        api.release(api.given_first("allocate", BYTES))
        api.release_host(api.given_first("allocate_host", BYTES))
    graph.replay()
    assert y.sum().item() == 16


def test_an_error_is_told_once(api: kernels.Kernels) -> None:
    memory = c_void_p()
    assert api.error("allocate", byref(memory), 1 << 60) == 2
    assert memory.value is None
    assert api.error("open", byref(kernels.Handle()), byref(memory)) != 0
    assert api.error("set_device", 12345) != 0
    x = torch.ones(8, device=DEVICE)
    assert api.add(torch.empty_like(x), [x], [2.0]).sum().item() == 16
