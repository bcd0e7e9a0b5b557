"""The fixtures of an accelerator's tests are the device, and ranks that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from tests.support import hosts, on_device, simulated
from tests.support.environment import simulated_accelerator


def kernels_of(device: str, kernels: str) -> dict[str, str]:
    if device == "cuda":
        return {} if kernels == "own" else {"BLUEFOG_ACCELERATOR": "cuda:nccl:/nowhere"}
    if kernels == "own":
        return {"BLUEFOG_ACCELERATOR": simulated_accelerator()}
    return {"BLUEFOG_ACCELERATOR": "simulated:simccl:/nowhere"}


@pytest.fixture(scope="module", params=["simulated", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if request.param == "simulated":
        simulated.build()  # It is built before the ranks, each of which would build it.
    return str(request.param)


@pytest.fixture
def run(device: str) -> Callable[..., list[Any]]:
    def on_ranks(
        body: Callable[..., Any],
        world: int,
        *args: Any,
        kernels: str = "own",
        dead: Iterable[int] = (),
        **env: str,
    ) -> Any:
        if env.get("BLUEFOG_TRANSPORT") == "mpi":
            hosts.need_mpi()
        env = kernels_of(device, kernels) | env
        return on_device.run(body, device, world, *args, dead=dead, **env)

    return on_ranks
