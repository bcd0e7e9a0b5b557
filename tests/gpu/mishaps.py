"""A rank of test_mishaps runs these bodies: its GPU is full, or fails."""

from __future__ import annotations

from typing import Any

import torch

import bluefog_pg
from tests.support import inrank

MIB = 1 << 20


def full(rank: int, _world: int) -> list[Any]:
    """Make a window when the GPU lacks memory, and again when it has memory.

    A window needs six times the tensor's memory.
    """
    bluefog_pg.set_topology()
    x = torch.full((64 * MIB,), rank + 1.0, device="cuda")
    inrank.meet("made", 2)
    rest = None
    if rank == 0:
        free, _ = torch.cuda.mem_get_info()
        rest = torch.empty(free - 1024 * MIB, dtype=torch.uint8, device="cuda")
    inrank.meet("filled", 2)
    error = inrank.catch(bluefog_pg.Window, x, "w")
    inrank.meet("refused", 2)
    del rest
    torch.cuda.empty_cache()
    inrank.meet("emptied", 2)
    window = bluefog_pg.Window(x, "w")
    window.put()
    inrank.meet("put", 2)
    mean = window.update().mean().item()
    window.free()
    return [error, mean]


def failing(rank: int, _world: int) -> list[Any]:
    """Fail an assertion in a kernel of rank 1, which ends what that rank can do with its GPU.

    Rank 0 hears of it, and its own part of the window still works.
    """
    bluefog_pg.set_topology()
    window = bluefog_pg.Window(torch.full((1000,), rank + 1.0, device="cuda"), "w")
    inrank.meet("made", 2)
    if rank == 1:
        torch._assert_async(torch.zeros((), device="cuda"))
        errors = [inrank.catch(window.put), inrank.catch(window.put, async_op=True)]
    else:
        window.put()
        errors = []
    inrank.meet("failed", 2)
    if rank == 0:
        window.put()
        errors += [window.update(self_weight=1.0, neighbor_weights={1: 0.0}).mean().item()]
    inrank.meet("done", 2)
    inrank.catch(window.free)  # Freeing needs the device.
    return errors
