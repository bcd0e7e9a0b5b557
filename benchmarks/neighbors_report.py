"""This module makes the goals and tables of what neighbors.py measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from figures import (
    KIB,
    MIB,
    Goal,
    Report,
    Row,
    goal_table,
    grouped,
    judge,
    plot,
    size_text,
    table,
    time_text,
    times_table,
)

FLAT = 1.25  # the most that a rank may cost, as a multiple of its cost among the fewest ranks
CaseKey = tuple[str, int, int]  # operation, number of ranks, size
Ratios = dict[CaseKey, float]


def ratios(rows: Iterable[Row], over: str, under: str) -> Ratios:
    """Return time of `over` / time of `under`, where both were timed."""
    found: Ratios = {}
    for what, own in grouped(rows, "op", "ranks", "size").items():
        times = {row["peer"]: row["time_us"] for row in own}
        if over in times and under in times:
            found[what] = times[over] / times[under]
    return found


# The functions below judge goals.


def worst_of(text: str, n: int, limit: float, unit: str, least: bool, found: Ratios) -> Goal:
    """Judge the worst of all operations and sizes of n ranks, and say which one that is."""
    own = {what: ratio for what, ratio in found.items() if what[1] == n}
    worst = (min if least else max)(own, key=lambda what: own[what], default=None)
    goal = judge(text, n, limit, own[worst] if worst else None, unit, least)
    if worst:
        op, _, size = worst
        goal.found += f" ({op}, {size_text(size)})"
    return goal


def against_mpi(rows: list[Row], n: int) -> Iterator[Goal]:
    large = [row for row in rows if row["size"] >= MIB]
    faster = ratios(large, "raw_mpi", "bluefog")
    yield worst_of("1 MiB and more, against raw MPI", n, 1.5, "x faster", True, faster)
    for size, limit in ((16 * KIB, 1), (4, 3)):
        slower = ratios([row for row in rows if row["size"] == size], "bluefog", "raw_mpi")
        text = f"{size_text(size)}, against raw MPI"
        yield worst_of(text, n, limit, "x its time", False, slower)


def once(text: str, rows: list[Row], n: int, key: str) -> Goal:
    counted = [row[key] for row in rows if row["ranks"] == n]
    return judge(text, n, 1, max(counted, default=None), "x", least=False)


def bytes_touched(rows: list[Row], n: int) -> Iterator[Goal]:
    text = "copies of the own tensor for each out-neighbor"
    yield once(text, rows, n, "copies_per_out_neighbor")
    yield once("readings of each peer's tensor", rows, n, "reads_per_in_neighbor")
    yield once("writings of the result", rows, n, "writes_of_result")


def normalized(scaling: dict[str, Any]) -> dict[tuple[str, int, int], dict[str, float]]:
    """Return the us per rank if each rank had a core, by (peer, size, ranks), and their growth."""
    costs = {
        (row["peer"], row["size"], row["ranks"]): row["time_us"]
        * min(scaling["cores"], row["ranks"])
        / row["ranks"]
        for row in scaling["rows"]
    }
    fewest = min((n for _, _, n in costs), default=0)
    return {
        (peer, size, n): {"us": cost, "growth": cost / costs[peer, size, fewest]}
        for (peer, size, n), cost in costs.items()
    }


def flat(scaling: dict[str, Any]) -> Iterator[Goal]:
    costs = normalized(scaling)
    ranks = sorted({n for _, _, n in costs})
    for size in sorted({size for _, size, _ in costs}):
        growth = [costs["bluefog", size, n]["growth"] for n in ranks[1:]]
        text = f"one-peer exchange of {size_text(size)}, cost per rank"
        unit = f"x that of {ranks[0]}"
        yield judge(text, ranks[-1], FLAT, max(growth, default=None), unit, least=False)


def goals(found: dict[str, Any]) -> list[Goal]:
    made: list[Goal] = []
    if any(row["peer"] == "nccl" for row in found["rows"]):
        return made  # No goal is set against NCCL.
    for n in sorted({row["ranks"] for row in found["rows"]}):
        made += against_mpi(found["rows"], n)
        fused = ratios(found["fused"], "list", "bluefog")
        made.append(worst_of("list of 100, against one", n, 1.5, "x its time", False, fused))
        made += bytes_touched(found["touched"], n)
    return [*made, *flat(found["scaling"])]


# The functions below make tables.


def touched_table(rows: list[Row]) -> str:
    counts = ("copies_per_out_neighbor", "reads_per_in_neighbor", "writes_of_result")
    lines = [
        (
            *(row["op"], row["ranks"], row["in_neighbors"], row["out_neighbors"]),
            *(f"{row[key]:.4g}" for key in counts),
        )
        for row in rows
    ]
    head = ["operation", "ranks", "in", "out", "copied per out-neighbor", "read per in-neighbor"]
    return table([*head, "written"], lines)


def scaling_table(scaling: dict[str, Any]) -> str:
    costs = normalized(scaling)
    times = {(r["peer"], r["size"], r["ranks"]): r["time_us"] for r in scaling["rows"]}
    lines = [
        (
            *(peer, size_text(size), n, time_text(times[peer, size, n])),
            *(time_text(cost["us"]), f"{cost['growth']:.2f}"),
        )
        for (peer, size, n), cost in sorted(costs.items())
    ]
    return table(["peer", "size", "ranks", "time", "cost per rank", "growth"], lines)


def sections(found: dict[str, Any]) -> Iterator[str]:
    yield goal_table(goals(found))
    for (op,), rows in grouped(found["rows"], "op").items():
        yield f"## {op}"
        yield times_table(rows, "ranks")
    if found["fused"]:
        yield "## 100 tensors in one call (list), and one tensor of the same bytes"
        yield times_table(found["fused"], "op", "ranks")
    if found["touched"]:
        yield "## Bytes that a call touches, counted in bytes of one tensor"
        yield touched_table(found["touched"])
    if found["scaling"]["rows"]:
        yield f"## One-peer exchange of more and more ranks on {found['scaling']['cores']} cores"
        yield scaling_table(found["scaling"])


NEIGHBORS = Report("Averaging with neighbors on one host", sections, plot)
