"""This simulated accelerator is torch's device "simulated", two of them, with a backend "simccl".

Its streams, events and memory behave as a GPU's do, in threads of the process. It says nothing of
CUDA, of NCCL, or of how fast anything is: only whether our code has them do the right things in the
right order.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_BUILD = _ROOT / "build" / f"simulated-{sys.version_info[0]}{sys.version_info[1]}"
PLUGIN = _BUILD / "_simulated.so"


def build() -> None:
    """Compile the accelerator unless that is done already. It takes half a minute."""
    from torch.utils import cpp_extension

    _BUILD.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MAX_JOBS", "2")
    cpp_extension.load(
        "_simulated", str(_HERE / "simulated.cpp"), build_directory=str(_BUILD),
        extra_include_paths=[str(_ROOT / "src")], extra_cflags=["-O1", "-std=c++20"],
        is_python_module=False,
    )  # fmt: skip


def load() -> Any:
    """Return the module, and make the device known to torch the first time."""
    if "_simulated" in sys.modules:
        return sys.modules["_simulated"]
    sys.path.insert(0, str(_BUILD))
    import _simulated

    torch.utils.rename_privateuse1_backend("simulated")
    device: Any = types.ModuleType("torch.simulated")
    device.is_available = lambda: True
    device.device_count = lambda: 2
    device.current_device = _simulated.current_device
    device.set_device = _simulated.set_device
    torch._register_device_module("simulated", device)
    dist.Backend.register_backend("simccl", _create, devices=["simulated"])
    return _simulated


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo/", store), rank, size, timeout=timeout)
    return load().Backend(rank, size, gloo)
