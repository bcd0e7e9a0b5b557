"""This module finds the machine's accelerator, and makes torch's own backend for its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions
from torch.distributed import distributed_c10d
from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout

from bluefog_pg._core import variables
from bluefog_pg._core.loader import load
from bluefog_pg._core.warning import warn

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend

# The variable says which device's tensors go to which of torch's backends: "cuda:nccl", "cpu:gloo".
# After another colon it may name the library with that device's kernels (src/device/api.h). The
# value "none" hands no device's tensors over.
_VARIABLE = "BLUEFOG_ACCELERATOR"


@dataclass(frozen=True)
class Accelerator:
    """An accelerator is a type of device, with the name of torch's backend for its tensors."""

    device: str
    backend: str
    plugin: str  # path of the library with its kernels, which may not exist; "" for no library

    @property
    def name(self) -> str:
        """Return what the group's options have as `accelerator`."""
        return f"{self.device}:{self.backend}"


def found() -> Accelerator | None:
    """Return the accelerator that the environment names, or else the one that this process has.

    Returns:
        None where there is none, or with a warning where torch has no backend for it.

    Raises:
        ValueError: BLUEFOG_ACCELERATOR is neither "none" nor "<device>:<backend>[:<library>]", or
            it names what this process cannot use.
    """
    given = (variables.read(_VARIABLE) or "").strip()
    if given.lower() == "none":
        return None
    if given:
        device, backend, plugin = [*given.split(":", 2), "", ""][:3]
        device, backend = device.lower(), backend.lower()
        if reason := _refused(device, backend, plugin):
            raise ValueError(
                f'[bluefog] {_VARIABLE}={given}: {reason}; expected "none", or a device and '
                'torch.distributed\'s backend for it, such as "cuda:nccl"'
            )
        if reason := _useless(device, backend):
            raise ValueError(f"[bluefog] {_VARIABLE}={given}: {reason}; unset it to use CPUs alone")
        return Accelerator(device, backend, plugin or _own_plugin(device))
    return _detected()


def _refused(device: str, backend: str, plugin: str) -> str:
    """Return why a program cannot have these three together; empty where it can."""
    try:
        torch.device(device)
    except RuntimeError:
        return f"torch knows no device {device!r}"
    usable = sorted({"gloo", "nccl", "xccl"} | {name.lower() for name in dist.Backend._plugins})
    usable.remove("bluefog")
    if not backend:
        return "it names no backend"
    if backend not in usable:
        return f"{backend!r} is none of {', '.join(usable)}"
    if device not in dist.Backend.backend_capability[backend]:
        return f"{backend} is for {', '.join(dist.Backend.backend_capability[backend])}"
    if device == "cpu" and plugin:
        return "for cpu there is no library with kernels"
    return ""


def _detected() -> Accelerator | None:
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return None
    backend = dist.Backend.default_device_backend_map.get(device.type)
    reason = _useless(device.type, backend)
    if backend is None or reason:
        warn(
            f'[bluefog] {device.type} tensors cannot be used with backend "bluefog": {reason}; '
            "CPU tensors can",
        )
        return None
    return Accelerator(device.type, str(backend), _own_plugin(device.type))


def _own_plugin(device: str) -> str:
    if device != "cuda":
        return ""
    beside = Path(str(load().__file__)).with_name("libbluefog_cuda.so")
    if not beside.exists():
        # A source installation has the library beside the module, the wheels in another package.
        package = find_spec("bluefog_pg_cuda13")
        for folder in [] if package is None else package.submodule_search_locations or []:
            return str(Path(folder, beside.name))
    return str(beside)


def _useless(device: str, backend: str | None) -> str:
    """Return why this process cannot use the backend for the device; empty where it can."""
    if backend is None or backend == "bluefog":
        return f"torch knows no other backend for {device}"
    for name, is_available in (("nccl", dist.is_nccl_available), ("xccl", dist.is_xccl_available)):
        if backend == name and not is_available():
            return f"this torch was built without {name.upper()}"
    if device == "cuda" and not torch.cuda.is_available():
        return "torch finds no CUDA device"
    return ""


def make(
    accelerator: Accelerator,
    seat: _DistributedBackendOptions,
    options: Any = None,
    source: Backend | None = None,
) -> Backend:
    """Make torch's backend for the accelerator, as torch makes it in `init_process_group`.

    Args:
        accelerator: says which backend.
        seat: what torch tells the creator of a backend about this rank and the new group.
        options: options of that backend's class, or None.
        source: what `split_source` has returned; None for a group that not all ranks of the default
            group know of.
    """
    if accelerator.backend == "gloo":
        return dist.ProcessGroupGloo(
            seat.store, seat.group_rank, seat.group_size, timeout=seat.timeout
        )
    if accelerator.backend == "nccl":
        return _nccl(seat, options, source)
    if accelerator.backend == "xccl":
        options = options or dist.ProcessGroupXCCL.Options()
        _describe(options, seat)
        return dist.ProcessGroupXCCL(seat.store, seat.group_rank, seat.group_size, options)
    return _plugin(accelerator.backend, seat, options)


def options_class(accelerator: Accelerator) -> type | None:
    """Return the class of `make`'s options, which programs may pass as pg_options; or None."""
    name = {"nccl": "ProcessGroupNCCL", "xccl": "ProcessGroupXCCL"}.get(accelerator.backend)
    return getattr(dist, name).Options if name else None


def _nccl(seat: _DistributedBackendOptions, options: Any, source: Any) -> Backend:
    options = options or dist.ProcessGroupNCCL.Options()
    _describe(options, seat)
    if seat.timeout == default_pg_timeout:
        options._timeout = default_pg_nccl_timeout
    if source:
        options.split_from = source
        options.split_color = distributed_c10d._process_group_color(seat.global_ranks_in_group)
    return dist.ProcessGroupNCCL(seat.store, seat.group_rank, seat.group_size, options)


def _describe(options: Any, seat: _DistributedBackendOptions) -> None:
    options._timeout = seat.timeout
    options.group_name = seat.group_id
    options.global_ranks_in_group = seat.global_ranks_in_group


def split_source(seat: _DistributedBackendOptions, accelerator: Accelerator) -> Backend | None:
    """Return the default group's accelerator backend if its communicator exists already, else None.

    All ranks of the default group take part in a split: torch has those that the new group leaves
    out call `perform_nocolor_split`, once. Where the program itself gave the default group torch's
    backend beside ours, the result is None, as that backend splits the communicator for its own
    part.
    """
    if not distributed_c10d.is_initialized():
        return None
    default = distributed_c10d._get_default_group()
    device = default.bound_device_id
    if device is None or device.type != accelerator.device:
        return None
    told: Any = seat  # Since torch 2.14 it says what torch splits.
    if hasattr(told, "split_from"):
        return getattr(told.split_from, "accelerator_backend", None)
    return getattr(distributed_c10d._get_split_source(default), "accelerator_backend", None)


def _plugin(name: str, seat: _DistributedBackendOptions, options: Any) -> Backend:
    plugin = dist.Backend._plugins[name.upper()]
    if not plugin.extended_api:
        plain: Backend = plugin.creator_fn(
            seat.store, seat.group_rank, seat.group_size, seat.timeout
        )
        return plain
    made: Backend = plugin.creator_fn(seat, options)
    return made
