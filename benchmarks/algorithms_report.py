"""This module makes the goals and the table of what algorithms.py found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from figures import Goal, Report, goal_table, judge, table

RANKS = 5
EXACT = 3  # The last methods end at the solution.


def goals(rows: list[dict[str, Any]]) -> Iterator[Goal]:
    def most(text: str, limit: float, found: float) -> Goal:
        return judge(text, RANKS, limit, found, "", least=False)

    yield most("farthest from where theory says", 1e-10, max(row["off"] for row in rows))
    bias = max(row["bias"] for row in rows[-EXACT:])
    yield most("farthest of exact methods from the solution", 1e-10, bias)
    differ = max(abs(row["rate"] - row["rate_in_theory"]) for row in rows)
    yield most("largest difference of rates", 0.02, differ)


def sections(found: dict[str, Any]) -> Iterator[str]:
    yield goal_table(goals(found["rows"]))
    head = ["algorithm", "learning rate", "from the solution, in theory", "found", "off theory by"]
    lines = [
        (
            *(row["name"], row["lr"], f"{row['bias_in_theory']:.3g}", f"{row['bias']:.3g}"),
            *(f"{row['off']:.1e}", f"{row['rate_in_theory']:.4f}", f"{row['rate']:.4f}"),
        )
        for row in found["rows"]
    ]
    yield table([*head, "rate in theory", "rate found"], lines)


ALGORITHMS = Report("Fixed points and rates of the algorithms", sections)
