"""This module averages with neighbors by messages that are compressed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from bluefog_pg import neighbors
from bluefog_pg.optim.communication import Communication, Finish
from bluefog_pg.optim.routes import Route, settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from bluefog_pg._core.group_state import GroupState
    from bluefog_pg.optim.compression import Compressor
    from bluefog_pg.optim.step_overrides import StepOverrides

_STAMP = 8  # bytes at a message's end: a digest of its receivers, and the number of those before it


class _Copy:
    """A _Copy is what some ranks know of one rank's tensor, the same on all of them."""

    def __init__(self, flat: Tensor) -> None:
        self.content = torch.zeros_like(flat)
        self.messages = 0

    def add(self, change: Tensor) -> None:
        change.nan_to_num_(0.0, 0.0, 0.0)  # Numbers that were too large to be sent count as 0.
        self.content.add_(change)
        self.messages += 1


class CompressedAverage(Communication):
    """Do w <- w + gamma sum_j w_ij (copy of w_j - copy of w_i), where ranks send changes of copies.

    Each rank sends, compressed, what its neighbors' copies of its parameters lack. The rest stays
    in that difference, and is sent later (CHOCO: Koloskova, Stich and Jaggi, ICML 2019). A rank has
    one copy for each set of ranks that it sends to. Thus all ranks that hold a copy hold the same
    one, to the bit.
    """

    activity = "NEIGHBOR_ALLREDUCE"

    def __init__(
        self, compressor: Compressor, overrides: StepOverrides, member: GroupState
    ) -> None:
        self._compressor, self._overrides, self._member = compressor, overrides, member
        # Copies are found by the tensor's place in the exchange, and a digest of the ranks that it
        # is sent to. For those of other ranks, their rank is between the two.
        self._own: dict[tuple[int, bytes], _Copy] = {}
        self._theirs: dict[tuple[int, int, bytes], _Copy] = {}
        self._route = Route()
        self._place = 0

    def advance(self) -> None:
        super().advance()
        self._route, self._place = self._overrides.route(), 0
        self._check(self._route)

    def repeat(self) -> None:
        super().repeat()
        self._place = 0

    def begin(self, flat: Tensor) -> Finish:
        (_, weights), destinations = settled(self._route, self._member)
        place, self._place = self._place, self._place + 1
        sent_to = _digest(destinations)
        own = self._own.setdefault((place, sent_to), _Copy(flat))
        # A copy would keep infinities and NaNs forever.
        change = (flat - own.content).nan_to_num_(0.0, 0.0, 0.0)
        message = self._compressor.compress(change)
        stamp = sent_to + own.messages.to_bytes(_STAMP - len(sent_to), "little")
        work = neighbors.neighbor_allgather(
            torch.cat([message, message.new_tensor(list(stamp))]),
            src_ranks=list(weights),
            dst_ranks=destinations,
            enable_topo_check=self._overrides.enable_topo_check,
            name=self._name,
            group=self._member.group,
            async_op=True,
        )

        def finish() -> None:
            work.wait()
            own.add(self._compressor.decompress(message, flat))
            messages = work.result()[0].view(-1, message.numel() + _STAMP)
            for got, (rank, weight) in zip(messages, weights.items(), strict=True):
                stamp = bytes(got[-_STAMP:].tolist())
                theirs = self._theirs.setdefault((place, rank, stamp[:4]), _Copy(flat))
                self._check_stamp(rank, stamp, theirs)
                theirs.add(self._compressor.decompress(got[:-_STAMP].clone(), flat))
                flat.add_(theirs.content - own.content, alpha=self._compressor.gamma * weight)

        return finish

    def close(self) -> None:
        self._own.clear()
        self._theirs.clear()

    def _check_stamp(self, rank: int, stamp: bytes, theirs: _Copy) -> None:
        if int.from_bytes(stamp[4:], "little") != theirs.messages:
            raise RuntimeError(
                f"{self._member.who} DistributedOptimizer, compressed: a message between rank "
                f"{rank} and this one was lost when an exchange failed, and their copies differ: "
                "call set_topology() on all ranks to begin again"
            )

    def _check(self, route: Route) -> None:
        where = f"{self._member.who} DistributedOptimizer, compressed: "
        if (route.self_weight is None) != (route.src_weights is None):
            raise ValueError(f"{where}self_weight and src_weights belong together: set both")
        if isinstance(route.dst_weights, Mapping) and any(
            weight != 1 for weight in route.dst_weights.values()
        ):
            raise ValueError(
                f"{where}dst_weights must be a list of ranks; the ranks that receive give the "
                "weights, in src_weights"
            )


def _digest(ranks: Sequence[int]) -> bytes:
    return zlib.crc32(repr(sorted(ranks)).encode()).to_bytes(4, "little")
