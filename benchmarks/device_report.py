"""This module makes the tables of what `make gpu` and host_time.py measured on accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from figures import Report, table


def gpu_sections(found: dict[str, Any]) -> Iterator[str]:
    yield "## Stages of `make gpu`"
    stages = found["stages"]
    lines = [(s["name"], s["result"], s["told"], f"{s['seconds']:.0f}") for s in stages]
    yield table(["stage", "result", "its last line", "seconds"], lines, texts=3)
    yield "## Speed: below 1, ours is faster"
    figures = [figure for stage in stages for figure in stage["figures"]]
    head = ["what", "ratio of times", "at most", "verdict", "ours, us", "the other's, us"]
    yield table(head, map(figure_row, figures))


def figure_row(figure: dict[str, Any]) -> tuple[str, ...]:
    ratio, limit = figure["ratio"], figure["goal"]
    ours, other = (f"{1e6 * seconds:.4g}" for seconds in figure["seconds"])
    verdict = "" if limit is None else "reached" if ratio <= limit else "missed"
    text = "" if limit is None else f"{limit:.3g}"
    return figure["what"], f"{ratio:.3f}", text, verdict, ours, other


def host_time_sections(rows: list[dict[str, Any]]) -> Iterator[str]:
    head = ["ranks", "bytes", "bluefog, us", "batch_isend_irecv and a kernel, us", "ratio"]
    lines = [
        (
            *(row["ranks"], row["bytes"]),
            *(f"{1e6 * seconds:.0f}" for seconds in row["seconds"].values()),
            f"{row['ratio']:.2f}",
        )
        for row in rows
    ]
    yield table(head, lines, texts=0)


GPU = Report("Speed on a GPU", gpu_sections)
HOST_TIME = Report("How long a call on an accelerator keeps its host", host_time_sections)
