"""This module makes the goals, tables and plot of what across_hosts.py measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from figures import (
    COLORS,
    KIB,
    MIB,
    Goal,
    Report,
    Row,
    goal_table,
    grouped,
    judge,
    size_text,
    table,
    times_table,
)

ONE_PEER = "neighbor_one_peer"
PEERS = ("bluefog", "gloo", "mpi", "wire")


def times(rows: Iterable[Row], **wanted: Any) -> dict[tuple[Any, ...], float]:
    """Return the times by rate, hosts, operation, size and peer."""
    return {
        (row["rate"], row["hosts"], row["op"], row["size"], row["peer"]): row["time_us"]
        for row in rows
        if all(row[key] == value for key, value in wanted.items())
    }


def ratios(rows: Iterable[Row], over: str, under: str, **wanted: Any) -> list[float]:
    found = times(rows, **wanted)
    pairs = ((t, found.get((*what, under))) for (*what, peer), t in found.items() if peer == over)
    return [t / other for t, other in pairs if other]


def growth(rows: list[Row], rate: str) -> float | None:
    """Return by how many percent one-peer averaging on more hosts differs from that on 2."""
    found = times(rows, rate=rate, op=ONE_PEER, peer="bluefog")
    alone = {size: t for (_, hosts, _, size, _), t in found.items() if hosts == 2}
    changes = [
        100 * abs(t / alone[size] - 1)
        for (_, hosts, _, size, _), t in found.items()
        if hosts > 2 and size in alone
    ]
    return max(changes, default=None)


def beyond_all_reduce(rows: list[Row], rate: str) -> float | None:
    """Return the least ratio of gloo's all_reduce to one-peer averaging of as much, on 8 hosts."""
    slow = times(rows, rate=rate, hosts=8, op="all_reduce", peer="gloo")
    fast = times(rows, rate=rate, hosts=8, op=ONE_PEER, peer="bluefog")
    ours = {size: t for (_, _, _, size, _), t in fast.items()}
    return min((t / ours[key[3]] for key, t in slow.items() if key[3] in ours), default=None)


def large(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["size"] >= MIB]


def of_rate(rows: list[Row], rate: str) -> Iterator[Goal]:
    def least(text: str, hosts: int, limit: float, found: float | None, unit: str) -> Goal:
        return judge(f"{text}, {rate}", hosts, limit, found, unit, least=True)

    def worst(over: str, **wanted: Any) -> float | None:
        return min(ratios(rows, over, "bluefog", rate=rate, **wanted), default=None)

    reduce_4 = {"op": "all_reduce", "hosts": 4}
    yield least("all_reduce against gloo", 4, 1, worst("gloo", **reduce_4), "x faster")
    yield least("all_reduce, part of the wire", 4, 0.9, worst("wire", **reduce_4), "")
    for hosts in (4, 8):
        part = worst("wire", op=ONE_PEER, hosts=hosts)
        yield least("one-peer averaging, part of the wire", hosts, 0.95, part, "")
    text = f"one-peer averaging, change from 2 hosts on, {rate}"
    yield judge(text, 8, 10, growth(rows, rate), "%", least=False)
    text = "one-peer averaging against gloo's all_reduce"
    yield least(text, 8, 1.7, beyond_all_reduce(rows, rate), "x faster")


def goals(found: dict[str, Any]) -> list[Goal]:
    """Judge each goal by the worst of all sizes and operations that it speaks of."""
    rows = found["rows"]
    made = [goal for rate in ("1gbit", "100mbit") for goal in of_rate(large(rows), rate)]
    small = [row for row in rows if row["size"] <= 4 * KIB]
    for hosts in (2, 4):
        slower = max(ratios(small, "bluefog", "mpi", rate="unlimited", hosts=hosts), default=None)
        made.append(judge("up to 4 KiB against MPI", hosts, 2, slower, "x its time", least=False))
    starts = {name: statistics.median(each) for name, each in found["starts"].items()}
    beyond = starts["bluefog"] - starts["gloo"] if starts else None
    made.append(judge("init of 2 ranks a host beyond gloo's", 2, 1, beyond, "s", least=False))
    return made


def plot(rows: list[Row], path: Path) -> None:
    """Plot the time over the number of hosts, of the largest size at each rate."""
    from matplotlib.figure import Figure

    ops, rates = (list(dict.fromkeys(row[key] for row in rows)) for key in ("op", "rate"))
    figure = Figure(figsize=(4.2 * len(rates), 3 * len(ops) + 0.4), layout="constrained")
    grid = figure.subplots(len(ops), len(rates), squeeze=False)
    for op, line_of_axes in zip(ops, grid, strict=True):
        for rate, axes in zip(rates, line_of_axes, strict=True):
            own = [row for row in rows if (row["op"], row["rate"]) == (op, rate)]
            size = max(row["size"] for row in own)
            for peer in PEERS:
                points = [r for r in own if (r["peer"], r["size"]) == (peer, size)]
                xs, ys = [r["hosts"] for r in points], [r["time_us"] / 1e3 for r in points]
                axes.plot(xs, ys, marker=".", label=peer, color=COLORS[peer])
            axes.set(title=f"{op}, {size_text(size)}, {rate}", ylim=(0, None))
            axes.set(xticks=sorted({r["hosts"] for r in own}), xlabel="hosts")
        line_of_axes[0].set_ylabel("time of a call, ms")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=90)


def sections(found: dict[str, Any]) -> Iterator[str]:
    yield goal_table(goals(found), of="hosts")
    for (op, rate), rows in grouped(found["rows"], "op", "rate").items():
        yield f"## {op}, {rate}"
        yield times_table(rows, "hosts", "ranks")
    if found["starts"]:
        yield "## init_process_group on 2 hosts of 2 ranks, seconds"
        lines = [
            (name, f"{statistics.median(each):.3f}", f"{min(each):.3f}", f"{max(each):.3f}")
            for name, each in found["starts"].items()
        ]
        yield table(["backend", "median", "least", "most"], lines)


ACROSS_HOSTS = Report("Operations across hosts", sections, plot)
