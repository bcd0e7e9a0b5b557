"""This module makes the goals and tables of what windows.py measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from figures import KIB, MIB, Goal, Report, Row, goal_table, judge, size_text, table, time_text

# A Limit has a text, the call, the call to compare with, sizes, and the most time in that one's.
Limit = tuple[str, str, str, tuple[int, ...], float]
LIMITS: tuple[Limit, ...] = (
    ("put, against memcpy", "put", "memcpy", (4 * MIB, 64 * MIB), 1.25),
    ("accumulate, against put", "accumulate", "put", (4 * MIB, 64 * MIB), 1.5),
    ("put, against MPI_Put and flush", "put", "MPI_Put", (4, 4 * KIB), 2.0),
    ("update, against reading and writing once", "update", "bare average", (4 * MIB,), 1.3),
)
LIMITS_OF_DEVICES: tuple[Limit, ...] = (("put, against a copy", "put", "memcpy", (64 * MIB,), 1.2),)
BUSY = "put, target computes, against it sleeps"


def alike(text: str, ranks: int, ratio: float) -> Goal:
    verdict = "reached" if abs(ratio - 1) <= 0.2 else "missed"
    return Goal(text, ranks, "1 ± 0.2 x its time", f"{ratio:.3g} x its time", verdict)


def goals(found: dict[str, Any]) -> Iterator[Goal]:
    us = {(row["ranks"], row["size"], row["call"]): row["us"] for row in found["rows"]}
    all_ranks = sorted({row["ranks"] for row in found["rows"]})
    for what, call, peer, sizes, limit in LIMITS if "across_hosts" in found else LIMITS_OF_DEVICES:
        for n in all_ranks:
            for size in sizes:
                if (n, size, call) in us:
                    ratio = us[n, size, call] / us[n, size, peer]
                    text = f"{what}, {size_text(size)}"
                    yield judge(text, n, limit, ratio, "x its time", least=False)
    busy, idle = ((2, 4 * MIB, f"put, {kind}") for kind in ("busy", "idle"))
    if busy in us:
        yield alike(f"{BUSY}, 4 MiB", 2, us[busy] / us[idle])


def calls_table(rows: list[Row], texts: dict[tuple[int, int, str], str]) -> str:
    """Return a table with a line for each call and number of ranks, and a column for each size."""
    sizes = sorted({row["size"] for row in rows})
    calls = dict.fromkeys((row["ranks"], row["call"]) for row in rows)
    lines = [(call, n, *(texts.get((n, size, call), "-") for size in sizes)) for n, call in calls]
    return table(["call", "ranks", *map(size_text, sizes)], lines)


def across_hosts(rows: list[Row]) -> Iterator[str]:
    seconds = {(row["size"], row["call"]): row["s"] for row in rows}
    rows = [row | {"ranks": 2} for row in rows]
    texts = {
        (2, size, call): f"{time_text(1e6 * s)} ({seconds[size, 'wire'] / s:.1%})"
        for (size, call), s in seconds.items()
    }
    yield "## Across 2 hosts, 1 Gbit/s: time of a call (the wire's time / its time)"
    yield goal_table(
        alike(f"{BUSY}, {size_text(size)}", 2, s / seconds[size, "put"])
        for (size, call), s in seconds.items()
        if call == "put, busy"
    )
    yield calls_table(rows, texts)


def sections(found: dict[str, Any]) -> Iterator[str]:
    rows = found["rows"]
    yield goal_table(goals(found))
    yield "## On one host: time of a call"
    us = {(row["ranks"], row["size"], row["call"]): row["us"] for row in rows}
    yield calls_table(rows, {what: time_text(time) for what, time in us.items()})
    if "across_hosts" in found:
        yield from across_hosts(found["across_hosts"])


WINDOWS = Report("Windows", sections)
