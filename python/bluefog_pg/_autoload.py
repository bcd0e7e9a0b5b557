"""This module makes the backend known to torch, which finds it by two groups of entry points.

Torch calls `register` (group `torch.backends`) at the end of `import torch`. Torch 2.14 and newer
call `register_or_raise` (`torch.distributed.backends`) when a program names a backend that is not
registered, as after `TORCH_DEVICE_BACKEND_AUTOLOAD=0`.
"""

import functools
import logging
import os
from types import ModuleType
from typing import Any


@functools.cache  # The package and torch both call it; together they give one warning.
def register() -> None:
    """Make `backend="bluefog"` known to torch.distributed, once; never raise.

    An exception would make `import torch` fail for every program of this environment. This module
    imports nothing of torch at its top: `import bluefog_pg` reaches torch through this function,
    torch's entry point calls it again in the middle of that, and by then it must be complete.
    """
    try:
        register_or_raise()
    except Exception as error:
        logging.getLogger("bluefog_pg").warning(
            'backend "bluefog" is not available: %s: %s', type(error).__name__, error
        )


def register_or_raise() -> None:
    """Do what `register` does, for the program that has asked for the backend by its name."""
    import torch
    import torch.distributed as dist

    if not dist.is_available() or "bluefog" in dist.Backend.backend_list:
        return
    from bluefog_pg._core.loader import leave_at_exit

    leave_at_exit()
    dist.Backend.register_backend("bluefog", _create, extended_api=True, devices=_devices(torch))
    if "PMIX_RANK" in os.environ:  # mpirun or srun has started this process.
        from bluefog_pg.launch.pmix import register as register_launcher

        register_launcher()


def _create(opts: Any, pg_options: Any = None) -> Any:
    """Make a group; its module is imported only by programs that make one."""
    from bluefog_pg.launch.creator import create

    return create(opts, pg_options)


def _devices(torch: ModuleType) -> list[str]:
    """Return the types of devices that this torch was built for.

    Only `init` asks whether there is such a device: a process that has asked CUDA must not be
    forked.
    """
    built = {"cuda": torch.backends.cuda.is_built(), "xpu": torch.xpu._is_compiled()}
    return ["cpu", *(device for device, is_built in built.items() if is_built)]
