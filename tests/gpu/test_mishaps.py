"""A GPU is full, or fails. These tests run alone on it, as others would not find memory."""

from __future__ import annotations

from tests.gpu import kernels, mishaps, ranks
from tests.support import harness

pytestmark = kernels.on_cuda


def test_no_room_for_a_window() -> None:
    told = ranks.run(mishaps.full, 2)
    for error, mean in told:
        harness.raised(error, "RuntimeError", text="win_create 'w': ")
        assert mean == 1.5
    assert any("bytes of the device's memory" in error.text for error, _ in told)


def test_a_gpu_that_fails() -> None:
    (got,), (put, put_later) = ranks.run(mishaps.failing, 2)
    assert got == 1.0
    harness.raised(put, "RuntimeError", text="win_put 'w': ")
    harness.raised(put_later, "RuntimeError", text="device-side assert")
