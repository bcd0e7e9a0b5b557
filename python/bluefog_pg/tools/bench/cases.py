"""This module has the operations that are compared: their buffers, and what must come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

CPU = torch.device("cpu")
Result = Tensor | list[Tensor]
Call = Callable[[], Result]


@runtime_checkable
class Repeating(Protocol):
    """A Repeating is a Call that repeats and times itself, in C, or with what it gave last."""

    def __call__(self) -> Result: ...

    def repeat(self, reps: int) -> float:
        """Return the seconds of one of `reps` calls."""


GRAPHS = ("neighbor_ring", "neighbor_exp2", "neighbor_one_peer")
PAIR = "pair_gossip"  # Ranks 0 and 1, 2 and 3, ... are pairs, so their number must be even.
NEIGHBOR = (*GRAPHS, PAIR)
# One of send and recv holds one rank's share, by op, where the other one holds n shares.
SHARE = {"all_gather": "send", "gather": "send", "reduce_scatter": "recv", "scatter": "recv"}
# This operation reduces 100 tensors in one call.
COALESCED = "all_reduce_coalesced"
OPS = (
    "all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce", "gather", "scatter",
    "all_to_all", COALESCED, *GRAPHS,
)  # fmt: skip


def settle() -> None:
    """Wait for what a GPU still has to do."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def joined(result: Result) -> Tensor:
    return result if isinstance(result, Tensor) else torch.cat(result)


@dataclass
class Case:
    """A Case is one operation at one size.

    It owns the buffers, which are the same for every peer.
    """

    op: str
    rank: int
    n: int
    size: int  # bytes of the larger buffer, as nccl-tests counts
    device: torch.device = CPU
    send: Tensor = field(init=False)
    recv: Tensor = field(init=False)

    def __post_init__(self) -> None:
        share = max(1, self.size // 4 // self.n)
        count = self.size // 4
        if self.op == COALESCED:
            count = max(count, 100)  # None of the 100 tensors is empty.
        if self.op in SHARE or self.op == "all_to_all":
            count = share * self.n
        self.size = 4 * count
        of_send = share if SHARE.get(self.op) == "send" else count
        of_recv = share if SHARE.get(self.op) == "recv" else count
        self.send = torch.zeros(of_send, device=self.device)
        self.recv = torch.zeros(of_recv, device=self.device)

    def edges(self) -> list[tuple[list[int], list[int]]]:
        """Return (sources, destinations) of one call after the other, before they begin anew."""
        n, at = self.n, self.rank
        if self.op == PAIR:
            return [([at ^ 1], [at ^ 1])]
        distances = [1 << k for k in range(n.bit_length()) if 1 << k < n]
        if self.op == "neighbor_ring":
            distances = sorted({1, n - 1})
        turns = [[d] for d in distances] if self.op == "neighbor_one_peer" else [distances]
        return [([(at - d) % n for d in ds], [(at + d) % n for d in ds]) for ds in turns]

    def values(self, rank: int) -> Tensor:
        """Return small integers, so that float32 sums are exact whatever their order."""
        return rank + 1.0 + torch.arange(self.send.numel(), device=self.device) % 7

    def expected(self, turn: int = 0) -> Tensor:
        if self.op == "broadcast":
            return self.values(0)
        if self.op in ("all_gather", "gather"):
            return torch.cat([self.values(r) for r in range(self.n)])
        if self.op == "scatter":
            return self.values(0).chunk(self.n)[self.rank]
        if self.op == "all_to_all":
            return torch.cat([self.values(r).chunk(self.n)[self.rank] for r in range(self.n)])
        if self.op in NEIGHBOR:
            sources, _ = self.edges()[turn]
            return torch.stack([self.values(r) for r in (self.rank, *sources)]).mean(0)
        total = torch.stack([self.values(r) for r in range(self.n)]).sum(0)
        return total.chunk(self.n)[self.rank] if self.op == "reduce_scatter" else total

    def wrong(self, call: Call) -> int:
        """Return how many elements the first call gets wrong, or the first of each turn."""
        self.send.copy_(self.values(self.rank))
        bad = 0
        for turn in range(len(self.edges()) if self.op in NEIGHBOR else 1):
            self.recv.fill_(-1)
            right = torch.isclose(joined(call()), self.expected(turn), rtol=1e-6)
            bad += int(right.logical_not().sum().item())
        if self.op in ("reduce", "gather") and self.rank != 0:
            bad = 0  # Only the root's result says something.
        self.send.zero_()  # An all_reduce in place that is repeated must not grow without bound.
        return bad

    def bus_factor(self) -> float:
        """Return busbw / algbw as nccl-tests has it.

        The factor of a neighbor operation is how many tensors a rank receives.
        """
        if self.op in NEIGHBOR:
            return float(len(self.edges()[0][0]))
        share = (self.n - 1) / self.n
        whole = {"all_reduce": 2 * share, COALESCED: 2 * share, "broadcast": 1.0, "reduce": 1.0}
        return whole.get(self.op, share)
