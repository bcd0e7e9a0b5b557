"""This module makes the goals and tables of what c10d_windows.py measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from figures import KIB, MIB, Goal, Report, goal_table, judge, size_text, time_text
from windows_report import calls_table


def goals(us: dict[tuple[int, str], float]) -> Iterator[Goal]:
    for size in (4, 4 * KIB, MIB, 64 * MIB):
        if (size, "put, signal, wait_signal") in us:
            ratio = us[size, "gloo's send, recv"] / us[size, "put, signal, wait_signal"]
            text = f"put, signal and wait_signal, against gloo's messages, {size_text(size)}"
            yield judge(text, 2, 4 if size < MIB else 1, ratio, "x its speed", least=True)
    if (64 * MIB, "put") in us:
        ratio = us[64 * MIB, "put"] / us[64 * MIB, "memcpy"]
        yield judge("put, against memcpy, 64 MiB", 2, 1.25, ratio, "x its time", least=False)


def sections(found: dict[str, Any]) -> Iterator[str]:
    rows = found["rows"]
    us = {(row["size"], row["call"]): row["us"] for row in rows}
    yield goal_table(goals(us))
    yield "## On one host: time of a call; of exchanges, half of the time there and back"
    yield calls_table(rows, {(2, *what): time_text(time) for what, time in us.items()})


C10D_WINDOWS = Report("c10d's windows", sections)
