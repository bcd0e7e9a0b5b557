"""This program is one rank of the comparison of c10d's windows with messages, on two ranks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import launch
import timing
import torch
import torch.distributed as dist

Call = Callable[[], Any]


def exchanges(
    me: launch.Rank, gloo: dist.ProcessGroup, window: Any, x: torch.Tensor
) -> dict[str, Call]:
    """Return calls that go to the other rank and back."""
    other, buffer = 1 - me.rank, torch.empty_like(x)
    mapped = window.map_remote_tensor(other)

    def in_turn(give: Call, take: Call) -> Call:
        first, second = (give, take) if me.rank == 0 else (take, give)

        def there_and_back() -> None:
            first()
            second()

        return there_and_back

    def put() -> None:
        window.put(x, other, 0, False)
        window.signal(other, False)

    def write() -> None:
        mapped.copy_(x)
        window.signal(other, False)

    def take() -> None:
        window.wait_signal(other, False)

    return {
        "put, signal, wait_signal": in_turn(put, take),
        "mapped copy, signal, wait_signal": in_turn(write, take),
        "bluefog's send, recv": in_turn(lambda: dist.send(x, other), lambda: dist.recv(buffer)),
        "gloo's send, recv": in_turn(
            lambda: dist.send(x, other, group=gloo), lambda: dist.recv(buffer, other, group=gloo)
        ),
    }


def repeated(call: Call, reps: int, gloo: dist.ProcessGroup) -> float:
    dist.barrier(group=gloo)
    start = time.perf_counter()
    for _ in range(reps):
        call()
    return (time.perf_counter() - start) / reps


def measure(me: launch.Rank, gloo: dist.ProcessGroup, size: int) -> list[dict[str, Any]]:
    x, to = torch.ones(max(1, size // 4)), torch.zeros(max(1, size // 4))
    window = dist._new_window(torch.zeros_like(x))
    both_ways = exchanges(me, gloo, window, x)
    alone: dict[str, Call] = {
        "put": lambda: window.put(x, 1, 0, False),
        "memcpy": lambda: to.copy_(x),
    }
    found: dict[str, list[float]] = {name: [] for name in (*both_ways, *alone)}
    reps = max(3, min(500, (64 << 20) // size))
    for turn in range(1 + me.args["rounds"]):  # The first turn brings the memory.
        for name, call in both_ways.items():
            found[name].append(1e6 * repeated(call, reps, gloo) / 2)
        for name, call in alone.items():
            if me.rank == 0:
                found[name].append(1e6 * repeated(call, reps, gloo))
            else:
                dist.barrier(group=gloo)
            dist.barrier(group=gloo)
        assert turn or size < 4 or window.map_remote_tensor(me.rank).eq(1).all()
    window.tensor_deregister()
    return [
        {"ranks": 2, "size": size, "call": name, "us": statistics.median(us[1:]), "all_us": us[1:]}
        for name, us in found.items()
        if us
    ]


def main() -> None:
    me = launch.join()
    gloo = timing.start(me, ["bluefog"])
    me.give_back([row for size in me.args["sizes"] for row in measure(me, gloo, size)])
    dist.barrier(group=gloo)
    dist.destroy_process_group()


if __name__ == "__main__":
    timing.run_rank(main)
