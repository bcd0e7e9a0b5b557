"""Averages with neighbours of what is sent in fewer bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bluefog_pg import neighbors
from bluefog_pg.optim.communication import Communication, Finish
from bluefog_pg.optim.routes import Route, settled

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg._member import Member
    from bluefog_pg.optim.compression import Compressor
    from bluefog_pg.optim.knobs import Knobs


class _Copies:
    """What the ranks of one exchange know of each other's tensors."""

    def __init__(self, flat: Tensor, sources: int) -> None:
        self.own = torch.zeros_like(flat)
        self.theirs = [torch.zeros_like(flat) for _ in range(sources)]


class CompressedAverage(Communication):
    """w <- w + gamma sum_j w_ij (copy of w_j - copy of w_i), where ranks send how copies change.

    Each sends, compressed, what its neighbours' copies of its parameters lack: what is not sent now
    stays in that difference, and is sent later (CHOCO: Koloskova, Stich and Jaggi, ICML 2019). In a
    schedule each of its steps has copies of its own.
    """

    def __init__(self, compressor: Compressor, knobs: Knobs, member: Member) -> None:
        self._compressor, self._knobs, self._member = compressor, knobs, member
        self._copies: dict[tuple[int, tuple[int, ...], tuple[int, ...]], _Copies] = {}
        self._route = Route()

    def advance(self) -> None:
        self._route = self._knobs.route()

    def begin(self, flat: Tensor) -> Finish:
        _, weights, destinations = settled(self._route, self._member)
        sources = tuple(weights)
        key = (id(flat), sources, tuple(destinations))
        copies = self._copies.get(key)
        if copies is None:
            copies = self._copies[key] = _Copies(flat, len(sources))
        message = self._compressor.compress(flat - copies.own)
        copies.own.add_(self._compressor.decompress(message, flat))
        work = neighbors.neighbor_allgather(
            message,
            src_ranks=sources,
            dst_ranks=destinations,
            group=self._member.group,
            async_op=True,
        )

        def finish() -> None:
            work.wait()
            messages = work.result()[0].view(-1, message.numel())
            for theirs, got, weight in zip(copies.theirs, messages, weights.values(), strict=True):
                theirs.add_(self._compressor.decompress(got.clone(), flat))
                flat.add_(theirs - copies.own, alpha=self._compressor.gamma * weight)

        return finish

    def close(self) -> None:
        self._copies.clear()
