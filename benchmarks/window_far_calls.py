"""This program is one rank of the comparison of windows across hosts.

Rank 0 writes, and its peer computes.
"""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import launch
import timing
import torch
import torch.distributed as dist

import bluefog_pg

IN_FLIGHT = 3


class Wire:
    """A Wire is a bare TCP connection from rank 0 to rank 1, which confirms what it has got."""

    def __init__(self, me: launch.Rank, most: int) -> None:
        self.buffer = memoryview(bytearray(most))
        if me.rank == 1:
            with socket.create_server(("", 0)) as server:
                me.store.set("wire", f"{launch.own_address()}:{server.getsockname()[1]}")
                self.connection, _ = server.accept()
            threading.Thread(target=self.serve, daemon=True).start()
        else:
            address, port = me.store.get("wire").decode().split(":")
            self.connection = socket.create_connection((address, int(port)))

    def serve(self) -> None:
        while header := self.connection.recv(8, socket.MSG_WAITALL):
            left = int.from_bytes(header, "little")
            while left:
                left -= self.connection.recv_into(self.buffer[:left])
            self.connection.sendall(b"!")

    def put(self, size: int) -> None:
        self.connection.sendall(size.to_bytes(8, "little"))
        self.connection.sendall(self.buffer[:size])
        self.connection.recv(1, socket.MSG_WAITALL)


def each(reps: int, call: Callable[[], Any]) -> float:
    """Return the seconds of one of so many calls."""
    start = time.perf_counter()
    for _ in range(reps):
        call()
    return (time.perf_counter() - start) / reps


def streamed(reps: int, call: Callable[[], Any]) -> float:
    """Return the seconds of one of so many asynchronous calls, of which IN_FLIGHT are under way."""
    start = time.perf_counter()
    works: list[Any] = []
    for _ in range(reps):
        works.append(call())
        if len(works) >= IN_FLIGHT:
            works.pop(0).wait()
    for work in works:
        work.wait()
    return (time.perf_counter() - start) / reps


def measure(me: launch.Rank, wire: Wire, size: int) -> dict[str, list[float]]:
    """Return the seconds of each call, in turns. Rank 1 sleeps, but computes in "busy" calls."""
    x = torch.ones(size // 4)
    window = bluefog_pg.Window(x.clone(), f"{size}", zero_init=True)
    reps = max(1, round(me.args["seconds"] * 119e6 / size))
    calls: dict[str, Callable[[], float]] = {
        "wire": lambda: each(reps, lambda: wire.put(size)),
        "put": lambda: each(reps, lambda: window.put(x)),
        "accumulate": lambda: each(reps, lambda: window.accumulate(x)),
        "put, asynchronous": lambda: streamed(reps, lambda: window.put(x, async_op=True)),
        "accumulate, asynchronous": lambda: streamed(
            reps, lambda: window.accumulate(x, async_op=True)
        ),
        "put, busy": lambda: each(reps, lambda: window.put(x)),
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(me.args["rounds"]):
        for name, call in calls.items():
            point = f"{size} {turn} {name}"
            dist.barrier()
            if me.rank == 0:
                found[name].append(call())
                me.store.set(point, "")
            elif name.endswith("busy"):
                computes_until(me.store, point)
            else:
                me.store.wait([point])
    window.free()
    return found


def computes_until(store: dist.Store, point: str) -> None:
    while not store.check([point]):
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            sum(range(1000))


def main() -> None:
    me = launch.join()
    timing.start(me, ["bluefog"])
    wire = Wire(me, max(me.args["sizes"]))
    rows = [
        {"size": size, "call": call, "s": statistics.median(s), "all_s": s}
        for size in me.args["sizes"]
        for call, s in measure(me, wire, size).items()
        if s
    ]
    me.give_back(rows)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    timing.run_rank(main)
