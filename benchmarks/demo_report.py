"""This module makes the goals and the table of what demo_runs.py found."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from figures import Goal, Report, goal_table, judge, table

Rows = list[dict[str, Any]]
RANKS = 4


def median(found: dict[str, Any], of: Callable[[Rows], float]) -> float:
    return statistics.median(of(run["rows"]) for run in found["runs"])


def goals(found: dict[str, Any]) -> Iterator[Goal]:
    def time(one: int, other: int) -> Callable[[Rows], float]:
        return lambda rows: rows[one]["seconds"] / rows[other]["seconds"]

    def sent(rows: Rows) -> float:
        return rows[2]["megabytes"] / rows[1]["megabytes"]

    took = statistics.median(run["took"] for run in found["runs"])
    yield judge("the whole demo", RANKS, 90, took, "s", least=False)
    for text, limit, of in (
        ("time of DDP on bluefog / on gloo", 1.0, time(1, 0)),
        ("bytes of one-peer averaging / of DDP", 0.7, sent),
        ("time of win_put / of DDP beside a rank 5 x slower", 0.4, time(4, 3)),
    ):
        yield judge(text, RANKS, limit, median(found, of), "", least=False)


def span(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.1f} {unit} ({min(values):.1f} to {max(values):.1f})"


def sections(found: dict[str, Any]) -> Iterator[str]:
    yield f"torch {found['torch']}, 4 ranks on one host, {len(found['runs'])} runs: the medians\n"
    yield goal_table(goals(found))
    lines = []
    for rows in zip(*(run["rows"] for run in found["runs"]), strict=True):
        sent = statistics.median(row["megabytes"] for row in rows)
        accuracy = statistics.median(row["accuracy"] for row in rows)
        time = span([row["seconds"] for row in rows], "s")
        bytes_sent = f"{sent:.1f} MB" if sent else "-"
        lines.append((rows[0]["title"], time, bytes_sent, f"{accuracy:.1%}", rows[0]["finished"]))
    head = ["training", "time", "sent by a rank", "test accuracy", "ranks that finished"]
    yield table(head, lines)


DEMO = Report("The trainings of make demo", sections)
