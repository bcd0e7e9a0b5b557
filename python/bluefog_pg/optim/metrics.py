"""How a training does: how far ranks are apart, what they send, how long they wait."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from bluefog_pg import collectives
from bluefog_pg._stats import stats
from bluefog_pg.optim.parameters import params_of
from bluefog_pg.windows import window_stats

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg.optim.distributed_optimizer import DistributedOptimizer


class Writer(Protocol):
    """As torch.utils.tensorboard.SummaryWriter."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...


@torch.no_grad()
def consensus_distance(
    params: Module | Iterable[Tensor], group: dist.ProcessGroup | None = None
) -> float:
    """The root of the mean over ranks of |w_i - mean of w|^2; all ranks call, and get the same.

    Args:
        params: a model, or alike tensors on all ranks.
        group: the process group; None, the default one.
    """
    tensors = list(params.parameters() if isinstance(params, Module) else params)
    flat = torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])
    mean = collectives.allreduce(flat, group=group)
    return float(collectives.allreduce((flat - mean).square().sum(), group=group).sqrt())


class Recorder:
    """Writes what an optimizer has done since the last time: to a file, or a SummaryWriter.

    Args:
        optimizer: a distributed one.
        to: a CSV file, which is made anew; what has `add_scalar`; or None.
        group: the optimizer's.
    """

    def __init__(
        self,
        optimizer: DistributedOptimizer,
        to: str | os.PathLike[str] | Writer | None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._optimizer, self._group = optimizer, group
        self._writer: Writer | None = None
        self._path: Path | None = None
        if isinstance(to, (str, os.PathLike)):
            self._path = Path(to)
        else:
            self._writer = to
        self._last = self._now()
        self._names: list[str] = []

    def write(self, step: int, *, distance: bool = False, **values: float) -> dict[str, float]:
        """Write, and return, these values and the metrics.

        Args:
            step: the number of this step.
            distance: with "consensus_distance", for which all ranks have to call.
            values: others, such as the loss.

        Returns:
            "bytes_sent", "exchanges" and "waited" (seconds) since the last time; of windows "age",
            that of the oldest content of a slot in seconds, and "lag", the most changes since an
            update; and `values`.
        """
        now = self._now()
        found = dict(values) | {name: now[name] - self._last[name] for name in now}
        slots = [
            slot
            for window in window_stats(self._group).values()
            for slot in window["from"].values()
        ]
        if slots:
            found["age"] = max(slot["age"] for slot in slots)
            found["lag"] = max(slot["version"] for slot in slots)
        if distance:
            params = params_of(self._optimizer)
            found["consensus_distance"] = consensus_distance(params, self._group)
        self._last = self._now()  # what the distance has sent is none of the training's
        self._put(step, found)
        return found

    def _now(self) -> dict[str, float]:
        tally = self._optimizer.tally
        sent = stats(self._group)["bytes_sent"]
        return {"bytes_sent": sent, "exchanges": tally.exchanges, "waited": tally.waited}

    def _put(self, step: int, found: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in found.items():
                self._writer.add_scalar(name, value, step)
        elif self._path is not None:
            is_new = not self._names
            self._names = self._names or [*dict.fromkeys(["step", *found, "consensus_distance"])]
            with self._path.open("w" if is_new else "a", newline="") as file:
                table = csv.DictWriter(file, self._names, restval="", extrasaction="ignore")
                if is_new:
                    table.writeheader()
                table.writerow({"step": step, **found})
