"""This module measures how far ranks are apart, what they send, and how long they wait."""

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
    """This protocol is the part of torch.utils.tensorboard.SummaryWriter that a Recorder uses."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...


@torch.no_grad()
def consensus_distance(
    params: Module | Iterable[Tensor], group: dist.ProcessGroup | None = None
) -> float:
    """Return the root of the mean over ranks of |w_i - mean of w|^2.

    All ranks call, and get the same number. It is computed in float64.

    Args:
        params: a model, or tensors of the same shapes on all ranks.
        group: the process group; None, the default one.

    Raises:
        ValueError: there are no tensors.
        Others as `bluefog_pg.collectives.allreduce`.

    Example:
        >>> round(bf.optim.consensus_distance([torch.tensor([float(bf.rank())])]), 4)
        1.118
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
    """Return a number as it is, or the one that a tensor or an array holds."""
    number: float = value.item() if hasattr(value, "item") else value
    return number


class Recorder:
    """Write what an optimizer has done since the last time: to a file, or a SummaryWriter.

    Thread safety: one thread at a time may use it, not during step(). It owns the rows that it has
    written; the file is open during `write` only.

    Args:
        optimizer: a distributed one.
        to: a CSV file, which rank 0 makes anew; an object that has `add_scalar`; or None.
        group: the optimizer's group.

    Raises:
        TypeError: `optimizer` is a plain one.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = bf.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), [], order="atc")
        >>> recorder = bf.optim.Recorder(optimizer, to=None)
        >>> w.sum().backward()
        >>> optimizer.step()
        >>> recorder.write(1)["exchanges"]
        1
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
        self._put_before: dict[str, float] = {}  # bytes put until the last look, by window
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
            "bytes_sent", "exchanges" and "waited" (seconds) since the last time. Windows add "age",
            that of the oldest content of a slot in seconds, and "lag", the most changes since an
            update. Then come `values`.

        Raises:
            OSError: the file cannot be written.

        Example:
            >>> w = torch.nn.Parameter(torch.zeros(1))
            >>> optimizer = bf.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), [], order="atc")
            >>> _ = torch.nn.init.constant_(w, bf.rank())
            >>> row = bf.optim.Recorder(optimizer, to=None).write(1, distance=True, loss=0.25)
            >>> sorted(row)
            ['bytes_sent', 'consensus_distance', 'exchanges', 'loss', 'waited']
            >>> row["loss"], round(row["consensus_distance"], 4)
            (0.25, 1.118)
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
        self._last = self._now()  # leaves out the bytes that the distance has sent
        self._put(step, found)
        return found

    def _now(self) -> dict[str, float]:
        tally = self._optimizer.tally
        sent = stats(self._group)["bytes_sent"] + self._put_until_now()
        return {"bytes_sent": sent, "exchanges": tally.exchanges, "waited": tally.waited}

    def _put_until_now(self) -> float:
        """Return the bytes put into all windows, some of which may be freed now, or made anew."""
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
