"""This module has what a user of torch.distributed calls for each operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch.distributed as dist

from bluefog_pg.tools.bench.cases import COALESCED

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.tools.bench.cases import Call, Case

# torch 2.13 renames these two functions, and warns about the old names.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class TorchPeer:
    """A TorchPeer calls what a user of torch.distributed calls."""

    checked = True

    def __init__(self, name: str, group: dist.ProcessGroup | None) -> None:
        self.name, self.group = name, group

    def bind(self, case: Case) -> Call | None:
        send, recv, group = case.send, case.recv, self.group
        whole = recv if case.op == "gather" else send
        parts = list(whole.chunk(case.n)) if case.rank == 0 else None
        hundred = list(send.tensor_split(100))

        calls: dict[str, tuple[Callable[[], object], Tensor]] = {
            "all_reduce": (lambda: dist.all_reduce(send, group=group), send),
            "broadcast": (lambda: dist.broadcast(send, 0, group=group), send),
            "all_gather": (lambda: all_gather(recv, send, group=group), recv),
            "reduce_scatter": (lambda: reduce_scatter(recv, send, group=group), recv),
            "reduce": (lambda: dist.reduce(send, 0, group=group), send),
            "gather": (lambda: dist.gather(send, parts, 0, group=group), recv),
            "scatter": (lambda: dist.scatter(recv, parts, 0, group=group), recv),
            "all_to_all": (lambda: dist.all_to_all_single(recv, send, group=group), recv),
            COALESCED: (lambda: dist.all_reduce_coalesced(hundred, group=group), send),
        }
        if case.op not in calls:
            return None
        function, result = calls[case.op]

        def call() -> Tensor:
            function()
            return result

        return call
