"""This program is one rank of the comparison of windows. Rank 0 writes; its peers take turns."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

import launch
import peers
import timing
import torch
import torch.distributed as dist

import bluefog_pg
from bluefog_pg.tools.bench.cases import settle

Repeat = Callable[[int], float]  # returns the seconds of one call when it makes so many


class Bare:
    """A Bare does without windows, in raw_window.c, what others do with the memory."""

    def __init__(self, library: str, most: int) -> None:
        mpi = peers.start_mpi()
        self.lib = ctypes.CDLL(library)
        for name in ("put", "copy", "average"):
            getattr(self.lib, name).restype = ctypes.c_double
        self.world = mpi.COMM_WORLD.Dup()
        address = ctypes.c_void_p(mpi._addressof(self.world))
        self.lib.open_window(address, ctypes.c_size_t(most))

    def calls(self, x: torch.Tensor, n: int) -> dict[str, Repeat]:
        return {
            "MPI_Put": self.put(x),
            "memcpy": self.copy(x, 1),
            "memcpy, 2 places": self.copy(x, 2),
            "bare average": self.average(x, n - 1),
        }

    def put(self, x: torch.Tensor) -> Repeat:
        data, size = ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(x.nbytes)
        return lambda reps: float(self.lib.put(data, size, 1, ctypes.c_size_t(reps)))

    def copy(self, x: torch.Tensor, turns: int) -> Repeat:
        """Copy to so many places in turn."""
        to = torch.zeros(turns, x.numel())

        def repeat(reps: int) -> float:
            data = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (to, x)]
            sizes = [ctypes.c_size_t(number) for number in (x.nbytes, turns, reps)]
            return float(self.lib.copy(*data, *sizes))

        return repeat

    def average(self, x: torch.Tensor, n: int) -> Repeat:
        out, others = torch.zeros_like(x), [torch.zeros_like(x) for _ in range(n)]

        def repeat(reps: int) -> float:
            pointers = (ctypes.c_void_p * n)(*(other.data_ptr() for other in others))
            sizes = [ctypes.c_size_t(number) for number in (n, x.numel(), reps)]
            return float(self.lib.average(ctypes.c_void_p(out.data_ptr()), pointers, *sizes))

        return repeat


class BareDevice:
    """A BareDevice copies within a device's memory by torch, and the host waits for the copy."""

    def calls(self, x: torch.Tensor, _n: int) -> dict[str, Repeat]:
        to = torch.zeros_like(x)

        def copy() -> None:
            to.copy_(x)
            settle()

        return {"memcpy": repeated(copy)}


def repeated(call: Callable[[], Any]) -> Repeat:
    def repeat(reps: int) -> float:
        start = time.perf_counter()
        for _ in range(reps):
            call()
        return (time.perf_counter() - start) / reps

    return repeat


def in_turns(calls: dict[str, Repeat], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the microseconds of a call in each round, by name."""
    reps = {}
    for name, repeat in calls.items():
        repeat(2)
        reps[name] = max(1, round(seconds / max(repeat(3), 1e-7)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, repeat in calls.items():
            repeat(1 + reps[name] // 10)  # This brings into the caches what the call works on.
            found[name].append(repeat(reps[name]) * 1e6)
    return found


def measure(
    me: launch.Rank, bare: Bare | BareDevice, size: int, device: torch.device
) -> dict[str, list[float]]:
    """Return the times of rank 0's calls; the others sleep meanwhile."""
    x = torch.ones(max(1, size // 4), device=device)
    everyone = [rank for rank in range(me.n) if rank != me.rank]
    window = bluefog_pg.Window(x.clone(), f"{size}", neighbors=(everyone, everyone))
    first = {"dst_weights": [1]} if me.n > 2 else {}
    dist.barrier()
    found: dict[str, list[float]] = {}
    if me.rank == 0:
        calls = {
            "put": repeated(lambda: window.put(x, **first)),
            "accumulate": repeated(lambda: window.accumulate(x, **first)),
            "update": repeated(window.update),
            **bare.calls(x, me.n),
        }
        found = in_turns(calls, me.args["rounds"], me.args["seconds"])
        me.store.set(f"done {size}", "")
    else:
        me.store.wait([f"done {size}"])
    dist.barrier()
    window.free()
    return found


def busy(me: launch.Rank, size: int) -> dict[str, list[float]]:
    """Time puts into a target that sleeps, and into one that computes, in turns."""
    x = torch.ones(size // 4)
    window = bluefog_pg.Window(x.clone(), "busy", zero_init=True)
    found: dict[str, list[float]] = {"idle": [], "busy": []}
    for turn in range(2 * me.args["rounds"]):
        kind = ("idle", "busy")[turn % 2]
        dist.barrier()
        end = time.monotonic() + 0.3
        if me.rank == 1 and kind == "idle":
            time.sleep(0.3)
        while me.rank == 1 and time.monotonic() < end:
            sum(range(1000))
        if me.rank == 0:
            time.sleep(0.05)
            found[kind].append(repeated(lambda: window.put(x))(50) * 1e6)
    dist.barrier()
    window.free()
    return found


def main() -> None:
    me = launch.join()
    device, library, sizes = me.device(), me.args["library"], me.args["sizes"]
    timing.start(me, ["bluefog"])
    bare = Bare(library, max(sizes)) if library else BareDevice()
    rows = []
    for size in sizes:
        rows += [
            {"ranks": me.n, "size": size, "call": call, "us": statistics.median(us), "all_us": us}
            for call, us in measure(me, bare, size, device).items()
        ]
    if me.n == 2 and device.type == "cpu":
        rows += [
            {"ranks": 2, "size": 4 << 20, "call": f"put, {kind}", "us": statistics.median(us)}
            for kind, us in busy(me, 4 << 20).items()
            if us
        ]
    me.give_back(rows)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    timing.run_rank(main)
