"""The operations that torch.distributed has not."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

from bluefog_pg import topology
from bluefog_pg._groups import backend_of, resolve, who

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    import torch.distributed as dist

_LONGEST = datetime.timedelta(days=3650)  # the backend cannot count timedelta.max


@overload
def neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: float | None = ...,
    src_weights: Mapping[int, float] | None = ...,
    dst_weights: Mapping[int, float] | Sequence[int] | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[False] = ...,
) -> torch.Tensor: ...


@overload
def neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: float | None = ...,
    src_weights: Mapping[int, float] | None = ...,
    dst_weights: Mapping[int, float] | Sequence[int] | None = ...,
    group: dist.ProcessGroup | None = ...,
    async_op: Literal[True],
) -> dist.Work: ...


def neighbor_allreduce(
    tensor: torch.Tensor,
    *,
    self_weight: float | None = None,
    src_weights: Mapping[int, float] | None = None,
    dst_weights: Mapping[int, float] | Sequence[int] | None = None,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> torch.Tensor | dist.Work:
    """Average `tensor` with the in-neighbours': x_i <- w_ii x_i + sum_j w_ij x_j.

    With no weights, over the group's topology (see `set_topology`; exponential-2 by default).
    Operations between the same two ranks match in the order they are issued. The sum is formed in
    the order of the ranks, in float32 for half types: equal inputs give equal bits.

    Args:
        tensor: any shape, floating, on the CPU, the same shape on every rank that meets. Unchanged.
        self_weight: w_ii. Needs `src_weights`.
        src_weights: {group rank j: w_ij}. Without `dst_weights` the ranks must be in-neighbours in
            the topology; the data of those that are left out is ignored. Needs `self_weight`.
        dst_weights: makes the graph of this call dynamic: this rank sends to these group ranks and
            receives from those of `src_weights`, whatever the topology says; the ranks must agree
            edge by edge. A mapping scales what is sent to each; a list is a mapping to 1.
        group: the process group; None, the default one.
        async_op: return a Work at once; after its wait() the average is `work.result()[0]`.

    Weights are taken as they are: they need not sum to 1.

    Returns:
        A new tensor shaped like `tensor`, or the Work.

    Raises:
        ValueError: weights that do not go together, that are not finite, or for ranks that are no
            neighbours; a tensor that is not dense on the CPU.
        TypeError: a tensor that is not of a floating type; a group of another backend.
        Mismatch: a neighbour that sends to this rank called with another number of elements or
            dtype. Who only sent a small tensor to such a one hears of it at its next call.
        PeerFailed: a neighbour that is needed died, or left without sending to this rank.
        CollectiveTimeout: a neighbour sent nothing within the group's timeout: it is late, or it
            does not list this rank in its `dst_weights`.
    """
    import torch

    resolved = resolve(group)
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{who(resolved)} neighbor_allreduce: "
            f"expected a torch.Tensor, got {type(tensor).__name__}"
        )
    edges = _Edges(resolved, tensor, self_weight, src_weights, dst_weights)
    work: dist.Work = backend_of(resolved).neighbor_allreduce(
        tensor,
        self_weight=edges.self_weight,
        sources=edges.sources,
        destinations=edges.destinations,
        divisor=edges.divisor,
        async_op=async_op,
    )
    if async_op:
        return work
    work.wait()  # between startCoalescing and endCoalescing nothing else does
    output: torch.Tensor = work.result()[0]
    return output


def monitored_barrier(
    group: dist.ProcessGroup | None = None,
    timeout: datetime.timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """Wait until all ranks are here, or say who is not; the group is as it was afterwards.

    torch keeps its function of this name, `torch.distributed.monitored_barrier`, to gloo.

    Args:
        group: the process group; None, the default one.
        timeout: how long, the same on all ranks; None, the group's timeout.
        wait_all_ranks: wait out the time and name all that did not come, not the first. (A rank 0
            that comes when others have given up is named alone.)

    Raises:
        CollectiveTimeout: on every rank, also on those that come later: ranks did not come in time.
        PeerFailed: a rank died, or left.
        Mismatch: a rank waits for this one in another operation. If that is a collective, the
            group's collectives have failed.
        TypeError: a group of another backend.
    """
    resolved = resolve(group)
    backend: Any = backend_of(resolved)  # torch's stub lacks the method
    limit = backend.options._timeout if timeout is None else timeout
    if not isinstance(limit, datetime.timedelta):
        raise TypeError(
            f"{who(resolved)} monitored_barrier: "
            f"timeout must be a datetime.timedelta, not {limit!r}"
        )
    backend.monitored_barrier(max(min(limit, _LONGEST), datetime.timedelta(0)), wait_all_ranks)


def stats(group: dist.ProcessGroup | None = None) -> dict[str, int]:
    """What this rank has done in the group since it was made.

    Returns:
        "bytes_sent": payload bytes handed to peers; "operations": operations issued.
    """
    backend = backend_of(resolve(group))
    return {"bytes_sent": backend.bytes_sent, "operations": backend.operations_issued}


class _Edges:
    """The weights of one call, checked and in the form the backend takes."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        tensor: torch.Tensor,
        self_weight: float | None,
        src_weights: Mapping[int, float] | None,
        dst_weights: Mapping[int, float] | Sequence[int] | None,
    ) -> None:
        self._group = group
        self._tensor = tensor
        self.divisor = 1.0
        if (self_weight is None) != (src_weights is None):
            self._fail("self_weight and src_weights must be given together")
        if dst_weights is not None and src_weights is None:
            self._fail("dst_weights needs self_weight and src_weights")
        near = topology.neighborhood(group)
        if self_weight is None or src_weights is None:
            self._take_static(near)
            return
        self.self_weight = self._number("self_weight", self_weight)
        given = self._weights("src_weights", src_weights)
        if dst_weights is not None:
            self.sources = sorted(given.items())
            self.destinations = sorted(self._destinations(dst_weights).items())
            return
        strangers = sorted(set(given) - set(near.sources))
        if strangers:
            self._fail(
                f"src_weights names ranks {strangers}, which are no in-neighbours "
                f"(those are {list(near.sources)}); give dst_weights for a dynamic graph"
            )
        self.sources = [(rank, given.get(rank, 0.0)) for rank in near.sources]
        self.destinations = [(rank, 1.0) for rank in near.destinations]

    def _take_static(self, near: topology.Neighborhood) -> None:
        self.destinations = [(rank, 1.0) for rank in near.destinations]
        if near.self_weight is None or near.source_weights is None:
            # Sum, then divide: exact where all are equal.
            self.self_weight = 1.0
            self.sources = [(rank, 1.0) for rank in near.sources]
            self.divisor = len(near.sources) + 1.0
        else:
            self.self_weight = near.self_weight
            self.sources = sorted(near.source_weights.items())

    def _destinations(self, given: Mapping[int, float] | Sequence[int]) -> dict[int, float]:
        if hasattr(given, "items"):
            return self._weights("dst_weights", given)
        if not isinstance(given, Iterable):
            self._fail(
                "dst_weights must be a dict {rank: weight} or a list of ranks, "
                f"not {type(given).__name__}"
            )
        ranks = [self._rank("dst_weights", rank) for rank in given]
        if len(set(ranks)) != len(ranks):
            self._fail(f"dst_weights names a rank twice: {ranks}")
        return dict.fromkeys(ranks, 1.0)

    def _weights(self, name: str, given: Any) -> dict[int, float]:
        if not hasattr(given, "items"):
            self._fail(f"{name} must be a dict {{rank: weight}}, not {type(given).__name__}")
        return {
            self._rank(name, rank): self._number(f"{name}[{rank}]", weight)
            for rank, weight in given.items()
        }

    def _rank(self, name: str, given: Any) -> int:
        try:
            rank = int(given.__index__())
        except (AttributeError, TypeError):
            self._fail(f"{name} has {given!r} where a rank belongs")
        if not 0 <= rank < self._group.size():
            self._fail(f"{name} names group rank {rank}; there are 0 to {self._group.size() - 1}")
        if rank == self._group.rank():
            self._fail(f"{name} names this rank itself; its weight is self_weight")
        return rank

    def _number(self, name: str, given: Any) -> float:
        try:
            number = topology.as_float(given)
        except (TypeError, ValueError):
            self._fail(f"{name} is {given!r}, not a number")
        if not math.isfinite(number):
            self._fail(f"{name} is {number}; weights must be finite")
        return number

    def _fail(self, what: str) -> Any:
        raise ValueError(
            f"{who(self._group)} neighbor_allreduce "
            f"{str(self._tensor.dtype).removeprefix('torch.')}{list(self._tensor.shape)}: {what}"
        )
