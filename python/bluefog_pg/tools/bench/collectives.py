"""This module is what each rank does to compare gloo and bluefog: both take turns in it."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg.tools.bench.cases import Case
from bluefog_pg.tools.bench.peer import TorchPeer
from bluefog_pg.tools.bench.turns import Plan, time_peer_by_peer

if TYPE_CHECKING:
    from bluefog_pg.tools.forks import Rank

BACKENDS = ("gloo", "bluefog")


@dataclass(frozen=True)
class Comparison:
    """A Comparison says what is compared, and how many seconds that may take."""

    operations: list[str]
    sizes: list[int]
    seconds: float
    rounds: int

    def run(self, me: Rank) -> None:
        """Tell a row for each case, and then how many cases were left out for lack of time."""
        end = time.monotonic() + self.seconds
        me.join("bluefog", timedelta(seconds=60))
        gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))
        groups = {"gloo": gloo, "bluefog": None}
        peers = [TorchPeer(name, groups[name]) for name in BACKENDS]
        todo = [(op, size) for op in self.operations for size in self.sizes]
        plan = Plan(self.rounds)
        for done, (op, size) in enumerate(todo):
            if _is_over(end, gloo):
                _tell(me, len(todo) - done)
                break
            _tell(me, _row(Case(op, me.number, me.size, size), peers, plan, gloo))
        dist.barrier()
        dist.destroy_process_group()


def _tell(me: Rank, what: Any) -> None:
    if me.number == 0:
        me.tell(what)


def _is_over(end: float, gloo: dist.ProcessGroup) -> bool:
    """Return the answer of rank 0, because all ranks must stop before the same case."""
    is_over = torch.tensor([time.monotonic() > end])
    dist.broadcast(is_over, 0, group=gloo)
    return bool(is_over)


def _row(case: Case, peers: list[TorchPeer], plan: Plan, gloo: dist.ProcessGroup) -> dict[str, Any]:
    calls = [call for peer in peers if (call := peer.bind(case)) is not None]
    wrong = torch.tensor([case.wrong(call) for call in calls])
    dist.all_reduce(wrong, group=gloo)
    _, times = time_peer_by_peer(calls, plan, gloo)
    row: dict[str, Any] = {"op": case.op, "size": case.size, "count": case.size // 4}
    for peer, seconds, bad in zip(peers, map(statistics.median, times), wrong, strict=True):
        algbw = case.size / seconds / 1e9
        row[peer.name] = {
            "us": seconds * 1e6,
            "algbw": algbw,
            "busbw": algbw * case.bus_factor(),
            "wrong": int(bad),
        }
    return row
