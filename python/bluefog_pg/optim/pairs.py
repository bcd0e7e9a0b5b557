"""This module has an algorithm in which pairs of ranks average, and nobody waits."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from bluefog_pg.optim.algorithm import Algorithm, Update
from bluefog_pg.optim.routes import settled
from bluefog_pg.windows import Window

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.context import Context


class AsynchronousPairs(Algorithm):
    """After each update, meet a random neighbor j: both move by (w_j - w_i) / (d + 1).

    d is the larger one of their numbers of neighbors, over all steps of a schedule. Each moves that
    far to the other; j moves when it next steps. Nobody asks it, and until then this rank meets
    others. So a slow rank moves at once by an average of all that have met it. Updates alone change
    the sum over ranks, with what is under way (as in AD-PSGD: Lian, Zhang, Zhang and Liu, ICML
    2018, where pairs meet half-way, and one waits for the other).

    Thread safety: the optimizer calls it from the thread of step(). A program makes it and hands it
    over. It owns windows, which the optimizer's close() frees; give each optimizer its own.

    Args:
        seed: seeds the choice, which is another one on each rank.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd, order = torch.optim.SGD([w], lr=0.1), bf.optim.AsynchronousPairs(seed=1)
        >>> optimizer = bf.DistributedOptimizer(sgd, [], order=order)
        >>> for _ in range(20):
        ...     optimizer.zero_grad()
        ...     (w * bf.rank()).sum().backward()
        ...     optimizer.step()
        >>> -7 < w.item() < 1  # Where the ranks are between depends on their pace.
        True
        >>> optimizer.close()
    """

    communications = ("neighbor_allreduce",)
    meets = False
    exchanges_at_each_pass = True
    takes_compression = False

    def __init__(self, seed: int = 0) -> None:
        """Take `seed`, which seeds the choice; it is another one on each rank."""
        self._seed = seed

    def open(self, context: Context) -> None:
        super().open(context)
        self._random = random.Random(f"{self._seed} {context.member.rank}")  # noqa: S311
        self._meetings = _Meetings(f"{context.prefix}.met", context)
        self._pairs = [
            _Pair(flat, f"{context.prefix}.{number}", context)
            for number, flat in enumerate(context.parameters())
        ]

    def close(self) -> None:
        while self._pairs:
            self._pairs.pop().free()
        self._meetings.free()

    def step(self, update: Update) -> None:
        self._collect()
        update()
        (_, weights), _ = settled(self.context.overrides.route(), self.context.member)
        degree = max(len(weights), *map(len, self.context.near()))
        self._meetings.tell_of_degree(degree)
        degrees = self._meetings.of_those_who_have_moved(weights)
        if degrees:
            peer = self._random.choice(sorted(degrees))
            self.context.stats.exchanges += 1
            for pair in self._pairs:
                pair.meet(peer, 1 / (max(degree, degrees[peer]) + 1))
            self._meetings.tell_of_one(peer)

    def _collect(self) -> None:
        met = self._meetings.met()  # is read first: the moves of all these meetings have come
        for pair in self._pairs:
            pair.collect()
        self._meetings.tell_that_moved(met)


class _Meetings:
    """A _Meetings counts how often each rank has met this one, and how many moves it has taken.


    A window holds three numbers for each rank that could meet: met, moved, degree.
    """

    def __init__(self, name: str, context: Context) -> None:
        near, group = _everyone(context), context.member.group
        size = context.member.size
        numbers = torch.zeros(3, dtype=torch.int64, device="cpu")
        self._window = Window(
            numbers, name, zero_init=True, neighbors=near, on_peer_failure="drop", group=group
        )
        self._met = [0] * size  # how often this rank has met each other rank
        self._moved = [0] * size  # how many meetings by each other rank this rank has moved by
        self._degree = 0

    def met(self) -> dict[int, int]:
        """Return how often the others have met this rank."""
        return {rank: int(self._window.read(rank)[0]) for rank in self._window.sources}

    def of_those_who_have_moved(self, ranks: Iterable[int]) -> dict[int, int]:
        """Return the degrees of ranks that live and have moved by all meetings with this one."""
        found, states = {}, self._window.states()
        for rank in ranks:
            _, moved, degree = self._window.read(rank).tolist()
            if not states[rank].has_ended and degree and moved == self._met[rank]:
                found[rank] = degree
        return found

    def tell_of_degree(self, degree: int) -> None:
        """Tell others this rank's degree; ranks that have not heard of it do not meet this rank."""
        if degree != self._degree:
            self._degree = degree
            for rank in self._window.sources:
                self._tell(rank)

    def tell_of_one(self, peer: int) -> None:
        self._met[peer] += 1
        self._tell(peer)

    def tell_that_moved(self, met: dict[int, int]) -> None:
        for rank, count in met.items():
            if count != self._moved[rank]:
                self._moved[rank] = count
                self._tell(rank)

    def free(self) -> None:
        self._window.free()

    def _tell(self, rank: int) -> None:
        numbers = [self._met[rank], self._moved[rank], self._degree]
        self._window.put(self._window.tensor.new_tensor(numbers), dst_weights=[rank])


class _Pair:
    """A _Pair has a bucket's two windows: others read it in one, and leave moves in the other."""

    def __init__(self, flat: Tensor, name: str, context: Context) -> None:
        near, group = _everyone(context), context.member.group
        self._read = Window(
            flat, f"{name}.w", zero_init=True, neighbors=near, on_peer_failure="drop", group=group
        )
        moves = flat.new_zeros(flat.shape)
        self._moved = Window(
            moves, f"{name}.d", zero_init=True, neighbors=near, on_peer_failure="drop", group=group
        )

    def collect(self) -> None:
        moves = self._moved.update_then_collect(require_mutex=False)
        self._read.tensor.add_(moves)
        moves.zero_()

    def meet(self, peer: int, part: float) -> None:
        self._read.get(src_weights=[peer])
        move = self._read.read(peer).sub_(self._read.tensor).mul_(part)
        self._read.tensor.add_(move)
        self._moved.accumulate(move.neg_(), dst_weights=[peer])

    def free(self) -> None:
        self._moved.fence()
        self.collect()
        self._read.free()
        self._moved.free()


def _everyone(context: Context) -> tuple[list[int], list[int]]:
    others = [rank for rank in range(context.member.size) if rank != context.member.rank]
    return others, others
