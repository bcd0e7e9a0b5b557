"""Two processes share one block of the device's memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu import kernels
from tests.gpu.kernels import DEVICE

pytestmark = kernels.on_cuda
OPENER = Path(__file__).with_name("opener.py")


def open_elsewhere(handle: bytes, count: int) -> None:
    command = [sys.executable, str(OPENER), handle.hex(), str(count)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("count", [8, 3_000_001])
def test_what_is_shared_is_read_and_written_elsewhere(count: int) -> None:
    """Another process changes a shared block, and not the block that lies beside it."""
    api = kernels.kernels()
    wholes = [torch.full((count,), i, dtype=torch.uint8, device=DEVICE) for i in (10, 20)]
    blocks = [api.given_first("allocate", count) for _ in wholes]
    for block, whole in zip(blocks, wholes, strict=True):
        api.copy(block, whole.data_ptr(), count, kernels.stream())
    api.stream_wait(kernels.stream())
    open_elsewhere(bytes(api.given("share", blocks[1])), count)
    for block, whole in zip(blocks, wholes, strict=True):
        api.copy(whole.data_ptr(), block, count, kernels.stream())
        api.release(block)
    assert [whole.unique().tolist() for whole in wholes] == [[10], [21]]
