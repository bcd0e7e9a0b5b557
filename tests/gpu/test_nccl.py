"""What NCCL has for a group comes through backend="bluefog"."""

from __future__ import annotations

import pytest

from tests.gpu import kernels, nccl, ranks

pytestmark = kernels.on_cuda


@pytest.mark.parametrize(
    "backend",
    ["bluefog", "cpu:bluefog,cuda:bluefog", "cpu:gloo,cuda:bluefog", "cpu:bluefog,cuda:nccl"],
)
def test_backends_by_device(backend: str) -> None:
    assert ranks.run(nccl.named, 2, backend) == [[3.0, 3.0, 1.5, 1.5]] * 2


def test_abort() -> None:
    first, second = ranks.run(nccl.aborted, 2)
    assert first == [3.0, False, True, 3.0, 3.0, 1.5]
    assert second == [3.0, True, 3.0, 3.0, 1.5]


def test_flight_recorder() -> None:
    settings = {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_NCCL_TRACE_BUFFER_SIZE": "100"}
    ours = ranks.run(nccl.recorded, 2, **settings)
    assert ours == ranks.run(nccl.recorded, 2, backend="nccl", **settings)
    assert [entry[0] for entry in ours[0]][:3] == ["nccl:all_reduce"] * 2 + ["nccl:broadcast"]
