"""This module gives tests an accelerator, simulated or a GPU, and runs ranks on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank

# A kernel of so many milliseconds stands for work that a GPU still has when the host goes on.
SLOW_KERNEL = 120
# A call may keep the host for so many seconds while its neighbors have not called.
PROMPT = 0.06 * harness.SLOW


class Simulated:
    """Simulated is the device of tests/support/simulated, for one rank."""

    name = "simulated"

    def __init__(self) -> None:
        from tests.support import simulated

        module = simulated.load()
        self.fill, self.copy, self.is_idle = module.fill, module.copy, module.is_idle
        self.exchange_stream, self.shutdowns = module.exchange_stream, module.shutdowns

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        os.environ["SIMULATED_CAPTURE"] = "1"
        yield
        del os.environ["SIMULATED_CAPTURE"]

    def be_shared_by_mistake(self) -> None:
        os.environ["SIMULATED_DUPLICATE"] = "1"

    def be_apart(self) -> None:
        del os.environ["SIMULATED_DUPLICATE"]


class Cuda:
    """Cuda is the first GPU, which all ranks share.

    NCCL takes each rank to be on a host of its own.
    """

    name = "cuda"
    CLOCK = 1_500_000  # A GPU makes at least so many cycles in a millisecond.

    def __init__(self) -> None:
        os.environ["NCCL_HOSTID"] = f"rank{os.environ['RANK']}"
        os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
        os.environ |= {"NCCL_MAX_CTAS": "2", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
        torch.cuda.set_device(0)
        self._streams = [torch.cuda.Stream() for _ in range(8)]

    def fill(self, tensor: torch.Tensor, value: float, milliseconds: int) -> None:
        torch.cuda._sleep(milliseconds * self.CLOCK)
        tensor.fill_(value)

    def copy(self, to: torch.Tensor, source: torch.Tensor, milliseconds: int) -> None:
        torch.cuda._sleep(milliseconds * self.CLOCK)
        to.copy_(source)

    def is_idle(self) -> bool:
        return torch.cuda.current_stream().query()

    def exchange_stream(self, stream: Any) -> Any:
        before = torch.cuda.current_stream()
        torch.cuda.set_stream(self._streams[stream] if isinstance(stream, int) else stream)
        return before

    def capture(self) -> contextlib.AbstractContextManager[None]:
        return torch.cuda.graph(torch.cuda.CUDAGraph())

    def be_shared_by_mistake(self) -> None:
        del os.environ["NCCL_HOSTID"]


DEVICES = {"simulated": Simulated, "cuda": Cuda}


def simulated_alone(device: str, why: str) -> None:
    """Skip a test of what no GPU can be brought to."""
    if device != "simulated":
        pytest.skip(f"of the simulated device: {why}")


def run(
    body: Callable[..., Any],
    device: str,
    world: int,
    *args: Any,
    dead: Iterable[int] = (),
    seconds: float = 80,
    **env: str,
) -> list[Any]:
    """Run `body(device, rank, world, *args)` on each rank, in a group of CPU and device.

    Return the ranks' values. The ranks `dead` are to die in it, and have the value None.
    """
    with harness.Ranks(world, env=env) as ranks:
        ranks.start(begun, device, f"{body.__module__}:{body.__qualname__}", world, args)
        return [o.value for o in ranks.join(seconds, dead)]


def begun(rank: int, _: int, kind: str, name: str, world: int, args: tuple[Any, ...]) -> Any:
    device = DEVICES[kind]()
    begin_group(kind, "met", rank, world)
    try:
        return inrank.resolve(name)(device, rank, world, *args)
    finally:
        dist.destroy_process_group()


def begin_group(kind: str, met: str, rank: int, world: int) -> None:
    """Make a group of CPU and device, whose ranks meet in the file `met`."""
    dist.init_process_group(
        f"cpu:bluefog,{kind}:bluefog",
        init_method=f"file://{inrank.directory() / met}", rank=rank, world_size=world,
    )  # fmt: skip
