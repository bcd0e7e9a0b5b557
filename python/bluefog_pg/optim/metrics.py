"""How a training does: how far ranks are apart, what they send, how long they wait."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from bluefog_pg import collectives
from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.stats import stats
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

    Raises:
        ValueError: there are none.
    """
    tensors = list(params.parameters() if isinstance(params, Module) else params)
    if not tensors:
        raise ValueError("[bluefog] consensus_distance: there are no parameters")
    flat = torch.cat([_reals(tensor.detach()) for tensor in tensors])
    mean = collectives.allreduce(flat, group=group)
    return float(collectives.allreduce((flat - mean).square().sum(), group=group).sqrt())


def _reals(tensor: Tensor) -> Tensor:
    parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return parts.reshape(-1).double()


def _plain(value: Any) -> float:
    """Of a number, or what holds one: a tensor, an array."""
    number: float = value.item() if hasattr(value, "item") else value
    return number


class Recorder:
    """Writes what an optimizer has done since the last time: to a file, or a SummaryWriter.

    Args:
        optimizer: a distributed one.
        to: a CSV file, which rank 0 makes anew; what has `add_scalar`; or None.
        group: the optimizer's.
    """

    def __init__(
        self,
        optimizer: DistributedOptimizer,
        to: str | os.PathLike[str] | Writer | None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        if not hasattr(optimizer, "tally"):
            raise TypeError(
                f"[bluefog] Recorder: {type(optimizer).__name__} is a plain optimizer; give one "
                "that DistributedOptimizer has made decentralized"
            )
        self._optimizer, self._group = optimizer, group
        self._writer: Writer | None = None
        self._path: Path | None = None
        if isinstance(to, (str, os.PathLike)):
            self._path = Path(to) if member_of(group).rank == 0 else None
        else:
            self._writer = to
        self._put_before: dict[str, float] = {}  # bytes, by window
        self._put_in_all = 0.0
        self._last = self._now()
        self._rows: list[dict[str, float]] = []
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
        found = {name: _plain(value) for name, value in values.items()} | {
            name: now[name] - self._last[name] for name in now
        }
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
        sent = stats(self._group)["bytes_sent"] + self._put_until_now()
        return {"bytes_sent": sent, "exchanges": tally.exchanges, "waited": tally.waited}

    def _put_until_now(self) -> float:
        """Into all windows, of which some may have been freed since, or made anew."""
        puts = {
            name: sum(there["bytes"] for there in window["to"].values())
            for name, window in window_stats(self._group).items()
        }
        for name, count in puts.items():
            before = self._put_before.get(name, 0)
            self._put_in_all += count - before if count >= before else count
        self._put_before = puts
        return self._put_in_all

    def _put(self, step: int, found: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in found.items():
                self._writer.add_scalar(name, value, step)
        if self._path is None:
            return
        self._rows.append({"step": step, **found})
        names = [*dict.fromkeys(name for row in self._rows for name in row)]
        is_old = names == self._names
        self._names = names
        with self._path.open("a" if is_old else "w", newline="") as file:
            table = csv.DictWriter(file, names, restval="")
            if not is_old:
                table.writeheader()
            table.writerows(self._rows[-1:] if is_old else self._rows)
