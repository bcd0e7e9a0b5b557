"""Averages of pairs, in which nobody waits."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from bluefog_pg.optim.order import Order, Update
from bluefog_pg.optim.routes import settled
from bluefog_pg.windows import Window

if TYPE_CHECKING:
    from torch import Tensor

    from bluefog_pg.optim.site import Site


class AsynchronousPairs(Order):
    """After each update this rank and a random neighbour j meet half-way, by (w_j - w_i) / 2 each.

    j moves when it next steps: it is not asked. The sum over ranks, and of what is under way, is
    what the updates have made it (AD-PSGD: Lian, Zhang, Zhang and Liu, ICML 2018).
    """

    def __init__(self, seed: int = 0) -> None:
        """`seed`: of the choice, which is another one on each rank."""
        self._seed = seed

    def open(self, site: Site) -> None:
        super().open(site)
        self._random = random.Random(f"{self._seed} {site.member.rank}")  # noqa: S311
        _, sources, _ = settled(site.knobs.route(), site.member)
        self._peers = sorted(sources)
        self._windows = [
            _Pair(flat, f"{site.prefix}.{number}", site)
            for number, flat in enumerate(site.parameters())
        ]

    def close(self) -> None:
        while self._windows:
            self._windows.pop().free()

    def step(self, update: Update) -> None:
        for window in self._windows:
            window.collect()
        update()
        if self._peers:
            peer = self._random.choice(self._peers)
            for window in self._windows:
                window.meet(peer)


class _Pair:
    """Of one bucket: a window in which others read it, and one for what they move it by."""

    def __init__(self, flat: Tensor, name: str, site: Site) -> None:
        everyone = [rank for rank in range(site.member.size) if rank != site.member.rank]
        neighbors, group = (everyone, everyone), site.member.group
        self._read = Window(flat, f"{name}.w", zero_init=True, neighbors=neighbors, group=group)
        moves = flat.new_zeros(flat.shape)
        self._moved = Window(moves, f"{name}.d", zero_init=True, neighbors=neighbors, group=group)

    def collect(self) -> None:
        moves = self._moved.update_then_collect(require_mutex=False)
        self._read.tensor.add_(moves)
        moves.zero_()

    def meet(self, peer: int) -> None:
        self._read.get(src_weights=[peer])
        half = self._read.read(peer).sub_(self._read.tensor).mul_(0.5)
        self._read.tensor.add_(half)
        self._moved.accumulate(half.neg_(), dst_weights=[peer])

    def free(self) -> None:
        self._moved.fence()
        self.collect()
        self._read.free()
        self._moved.free()
