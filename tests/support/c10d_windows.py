"""These bodies use c10d's own windows, which torch has from 2.14 on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness

NEEDED = pytest.mark.skipif(
    not hasattr(dist, "_new_window"), reason="torch has c10d's windows from 2.14 on"
)
ON_ONE_HOST = pytest.mark.skipif(
    harness.TRANSPORT != "", reason="these ranks share no memory, as ranks of several hosts"
)


def made(tensor: torch.Tensor | None = None, group: Any = None) -> Any:
    return dist._new_window(tensor, group)


def within(seconds: float) -> Any:
    """Return the options of a wait for a signal that may take so long."""
    from torch._C._distributed_c10d import WaitSignalOptions

    options = WaitSignalOptions()
    options.timeout = timedelta(seconds=seconds)
    return options


def is_mapped(window: Any, rank: int) -> bool:
    return str(window.get_attr(rank).access_type.name) == "UNIFIED"


def around(rank: int, world: int) -> tuple[int, int]:
    """Return the next rank of a ring and the one before."""
    return (rank + 1) % world, (rank - 1) % world
