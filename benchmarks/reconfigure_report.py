"""This module makes the goals and the table of what reconfigure.py found."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from figures import Goal, Report, goal_table, judge, table, time_text

MOST_MS = 50.0
CHANGES = ("shrink", "grow")


def times(found: dict[str, Any], backend: str, change: str) -> list[float]:
    return [1e6 * row[change] for row in found["rows"] if row["backend"] == backend]


def span(us: list[float]) -> str:
    return f"{time_text(statistics.median(us))} ({time_text(min(us))} to {time_text(max(us))})"


def goals(found: dict[str, Any]) -> Iterator[Goal]:
    for change in CHANGES:
        median = statistics.median(times(found, "bluefog", change)) / 1e3
        text = f"a group of {found['ranks']} {change}s by one member"
        yield judge(text, found["ranks"], MOST_MS, median, "ms", least=False)


def sections(found: dict[str, Any]) -> Iterator[str]:
    yield f"torch {found['torch']}, {found['ranks']} processes on one host\n"
    yield goal_table(goals(found))
    lines = []
    for change in CHANGES:
        ours, gloos = (times(found, backend, change) for backend in ("bluefog", "gloo"))
        ratio = statistics.median(gloos) / statistics.median(ours)
        lines.append((change, span(ours), span(gloos), f"{ratio:.2f}"))
    yield table(["change", "bluefog", "gloo", "gloo / bluefog"], lines)


RECONFIGURE = Report("Groups that change their members", sections)
