"""This module makes the goals and the table of what demo_runs.py found."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from figures import Goal, Report, goal_table, judge, table

RANKS = 4
LIMITS = {
    "time of DDP on bluefog / on gloo": 1.0,
    "bytes of one-peer averaging / of DDP": 0.7,
    "time of win_put / of DDP beside a rank 5 x slower": 0.4,
}


def ratios(rows: list[dict[str, Any]]) -> tuple[float, ...]:
    """Return what LIMITS names, from the rows of one run in the order of examples/demo.py."""
    gloo, ddp, one_peer, slow_ddp, slow_put, _ = rows
    return (
        ddp["seconds"] / gloo["seconds"],
        one_peer["megabytes"] / ddp["megabytes"],
        slow_put["seconds"] / slow_ddp["seconds"],
    )


def goals(found: dict[str, Any]) -> Iterator[Goal]:
    took = statistics.median(run["took"] for run in found["runs"])
    yield judge("the whole demo", RANKS, 90, took, "s", least=False)
    every = zip(*(ratios(run["rows"]) for run in found["runs"]), strict=True)
    for (text, limit), of in zip(LIMITS.items(), every, strict=True):
        yield judge(text, RANKS, limit, statistics.median(of), "", least=False)


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
    yield "Each row is the slowest or worst of the ranks that were neither slow nor killed.\n"
    head = ["training", "time", "sent by a rank", "test accuracy", "ranks that finished"]
    yield table(head, lines)


DEMO = Report("The trainings of make demo", sections)
