"""Time how long a group takes to lose a member and to take one in, beside gloo.

    python benchmarks/reconfigure.py [--ranks 8]     torch 2.14 or newer

A change lasts on rank 0 from its call of torch.distributed._reconfigure to the end of the first
all_reduce of the new members. The backends take turns, each time in new processes.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from reconfigure_report import RECONFIGURE

RESULTS = Path(__file__).parent / "results" / "reconfigure.json"
BACKENDS = ("bluefog", "gloo")
LIMIT = timedelta(seconds=60)


class Changing:
    """A Changing is a group of one backend, and the handles of its members."""

    def __init__(self, backend: str, store: dist.Store, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.store = dist.PrefixStore(backend, store)
        dist.init_process_group(
            backend, store=self.store, rank=rank, world_size=size, timeout=LIMIT,
            enable_reconfigure=True,
        )  # fmt: skip
        self.uuid = 0
        self.handles = self._exchanged(range(size))

    def change(self, members: range) -> float:
        """Make the group of these processes; return the seconds that it took."""
        self.uuid += 1
        self.meet(f"begin {self.uuid}")
        began = time.perf_counter()
        if self.rank in members:
            given = [self.handles[member] for member in members]
            dist._reconfigure(self.uuid, given, timeout=LIMIT).wait()
            x = torch.ones(1)
            dist.all_reduce(x)
            if int(x) != len(members):
                raise AssertionError(f"{int(x)} members instead of {len(members)}")
        took = time.perf_counter() - began
        self.meet(f"end {self.uuid}")
        # gloo gives other handles after each change.
        self.handles = self._exchanged(members)
        return took

    def _exchanged(self, members: range) -> list[str]:
        if self.rank in members:
            handle = dist._get_reconfigure_handle()
            self.store.set(f"handle {self.uuid} {self.rank}", handle)
        known = list(getattr(self, "handles", [""] * self.size))
        for member in members:
            known[member] = self.store.get(f"handle {self.uuid} {member}").decode()
        return known

    def meet(self, name: str) -> None:
        self.store.add(name, 1)
        while self.store.add(name, 0) < self.size:
            time.sleep(0.002)


def measure(rank: int, size: int, port: int, backend: str, rounds: int) -> None:
    torch.set_num_threads(1)
    store = dist.PrefixStore(backend, dist.TCPStore("127.0.0.1", port, is_master=False))
    group = Changing(backend, store, rank, size)
    group.change(range(size))
    rows = []
    for _ in range(rounds):
        shrink = group.change(range(size - 1))
        rows.append({"backend": backend, "shrink": shrink, "grow": group.change(range(size))})
    if rank == 0:
        store.set("rows", json.dumps(rows))
    group.meet("over")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10, help="changes down and up in a turn")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for _ in range(args.turns):
        for backend in BACKENDS:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            place = (args.ranks, store.port, backend, args.rounds)
            mp.spawn(measure, place, nprocs=args.ranks)
            rows += json.loads(store.get(f"{backend}/rows"))
    found = {"torch": torch.__version__, "ranks": args.ranks, "rows": rows}
    RECONFIGURE.write(found, args.out)


if __name__ == "__main__":
    main()
