"""DDP and FSDP2 on a GPU: backend="bluefog" ends with the parameters of backend="nccl"."""

from __future__ import annotations

import pytest

from tests.gpu import kernels, models, ranks

pytestmark = kernels.on_cuda


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_as_over_nccl(name: str, world: int) -> None:
    ours = ranks.run(models.trained, world, name, ranks.DEVICE)
    theirs = ranks.run(models.trained, world, name, ranks.DEVICE, backend="nccl")
    for (parameters, losses), (expected, _) in zip(ours, theirs, strict=True):
        assert parameters == pytest.approx(expected, abs=1e-6)
        assert losses[-1] < 0.9 * losses[0], "learned nothing"
