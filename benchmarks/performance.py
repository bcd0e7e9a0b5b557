"""Write the tables of docs/performance.md again: python benchmarks/performance.py.

Each table lies between two comments of the page, and its figures come from benchmarks/results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from figures import median_us, size_text, table, time_text
from pictures import results

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
KIB, MIB = 1 << 10, 1 << 20


def collectives() -> str:
    """Return the time of all_reduce beside gloo and Open MPI."""
    rows = [row for row in results("collectives")["rows"] if row["op"] == "all_reduce"]
    times = {(row["ranks"], row["size"], row["peer"]): median_us(row) for row in rows}
    lines = []
    for ranks in (2, 4):
        for size in (4, 4 * KIB, 64 * KIB, MIB, 64 * MIB):
            ours, gloo, mpi = (times[ranks, size, peer] for peer in ("bluefog", "gloo", "mpi"))
            told = [time_text(us).replace("us", "µs") for us in (ours, gloo, mpi)]
            lines.append([ranks, size_text(size), *told, f"{gloo / ours:.0f}"])
    return table(["ranks", "size", "bluefog", "gloo", "Open MPI", "gloo / bluefog"], lines, 0)


def overhead() -> str:
    """Return what communication adds to a training step."""
    runs = results("training")["overhead"]["runs"]
    alone = median(run["none"] for run in runs)
    titles = {
        "none": "no communication",
        "ddp gloo": "DDP on gloo",
        "ddp bluefog": "DDP on bluefog",
        "awc": 'one-peer averages, order "awc"',
        "atc": 'one-peer averages, order "atc"',
    }
    times = {name: median(run[name] for run in runs) for name in titles}
    lines = [
        [titles[name], f"{1000 * time:.1f}", f"{1000 * (time - alone):.1f}"]
        for name, time in times.items()
    ]
    return table(["method", "ms a step", "of them communication"], lines)


def beside_gloo(part: str, titles: dict[str, str], key: Callable[[Any], float]) -> str:
    """Return the methods' times, each with its best learning rate, beside that of DDP on gloo.

    Args:
        part: the part of the results.
        titles: what the table calls the methods.
        key: returns the seconds of a result.
    """
    times = dict.fromkeys(titles, math.inf)
    for name, value in results("training")[part].items():
        method = name.rpartition(" ")[0]
        if method in times:
            times[method] = min(times[method], key(value))
    lines = [
        [
            titles[name],
            f"{time:.2g} s" if time < 10 else f"{time:.0f} s",
            f"{times['ddp gloo'] / time:.1f}",
        ]
        for name, time in times.items()
        if math.isfinite(time)
    ]
    return table(["method", "time", "DDP on gloo / method"], lines)


def slow() -> str:
    """Return the time of a training beside a slow rank."""
    titles = {
        "ddp gloo": "DDP on gloo",
        "ddp bluefog": "DDP on bluefog",
        "awc": 'one-peer averages, order "awc"',
        "win_put": '"win_put"',
        "pairs": "`AsynchronousPairs`",
    }
    return beside_gloo("slow", titles, float)


def network() -> str:
    """Return the time of a training over a slow network."""
    titles = {
        "ddp gloo": "DDP on gloo",
        "atc every8": '"atc", `every=8`',
        "win_put": '"win_put"',
        "atc every8 int8": '"atc", `every=8`, `compression="int8"`',
    }
    return beside_gloo("accurate", titles, lambda row: row["seconds"])


def accuracy() -> str:
    """Return the test accuracy after the same number of epochs."""
    titles = {
        "ddp gloo": "DDP on gloo",
        "awc": 'one-peer averages, order "awc"',
        "atc": 'one-peer averages, order "atc"',
        "atc int8": 'the same, `compression="int8"`',
        "win_put": '"win_put"',
    }
    epochs = results("training")["epochs"]
    lines = [
        [title, *(f"{100 * epochs[ranks][f'{name} sgd0.1']:.2f} %" for ranks in ("4", "8"))]
        for name, title in titles.items()
    ]
    return table(["method", "4 ranks", "8 ranks"], lines)


def windows() -> str:
    """Return the time of a window's calls on one host."""
    rows = {
        (row["call"], row["size"]): row["us"]
        for row in results("windows")["rows"]
        if row["ranks"] == 2
    }
    sizes = (4, 4 * KIB, MIB, 64 * MIB)
    lines = [
        [call, *(time_text(rows[call, size]).replace("us", "µs") for size in sizes)]
        for call in ("put", "accumulate", "update", "memcpy")
    ]
    return table(["call", *map(size_text, sizes)], lines)


def members() -> str:
    """Return how long a group takes to go on with one rank less, or more."""
    rows = results("reconfigure")["rows"]
    lines = []
    for change in ("shrink", "grow"):
        ours, gloo = (
            1000 * median(row[change] for row in rows if row["backend"] == backend)
            for backend in ("bluefog", "gloo")
        )
        title = {"shrink": "one rank less", "grow": "one rank more"}[change]
        lines.append([title, f"{ours:.1f} ms", f"{gloo:.1f} ms"])
    return table(["change", "bluefog", "gloo"], lines)


TABLES = {
    make.__name__: make
    for make in (collectives, overhead, slow, network, accuracy, windows, members)
}


def written(text: str) -> str:
    """Return the page's text with its tables made again."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
