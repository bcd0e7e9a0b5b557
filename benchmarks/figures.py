"""All reports share this: sizes and times as text, tables, goals, plots, and the files of these.

Reports need nothing beyond Python but for plots, which matplotlib draws.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
KIB, MIB = 1 << 10, 1 << 20
COLORS = {
    "bluefog": "tab:blue",
    "gloo": "tab:orange",
    "mpi": "tab:green",
    "raw_mpi": "tab:red",
    "nccl": "tab:green",
    "fake": "tab:gray",
    "torch.add": "tab:gray",
    "memcpy": "black",
    "wire": "black",
}
# A column of ratios divides the first peer's time by the second's, where both were timed.
RATIOS = (
    *((peer, "bluefog") for peer in ("gloo", "mpi", "raw_mpi", "nccl", "wire", "list")),
    ("bluefog", "torch.add"),
)
HEAD = """# {title}

This page is made by `benchmarks/report.py`; do not edit it. Its figures come from
[{source}]({source}).
The [README](../README.md) says how they are taken and how to read them.
"""


def size_text(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us: float) -> str:
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if us >= unit:
            return f"{us / unit:.2f} {name}"
    return f"{us:.1f} us" if us >= 10 else f"{us:.3g} us"


def ratio_text(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"


# Programs print these lines of nccl-tests while they measure.


def heading(op: str, ranks: int) -> str:
    columns = f"{'size':>10} {'count':>10} {'type':>8} {'peer':>9} {'time':>11} {'least':>11}"
    units = f"{'(B)':>10} {'(elements)':>10} {'':>8} {'':>9} {'(us)':>11} {'(us)':>11}"
    return (
        f"\n{op}, {ranks} ranks\n{columns} {'algbw':>8} {'busbw':>8} {'#wrong':>7}\n"
        f"{units} {'(GB/s)':>8} {'(GB/s)':>8} {'':>7}"
    )


def median_us(row: Row) -> float:
    return row["time_us"]


def least_us(row: Row) -> float:
    """Return the time of the turn that others on the machine disturbed least."""
    return min(row["rounds_us"])


def line(row: Row) -> str:
    alg, bus = ("-" if row[k] is None else f"{row[k]:.2f}" for k in ("algbw", "busbw"))
    wrong = "-" if row["wrong"] is None else row["wrong"]
    return (
        f"{row['size']:>10} {row['count']:>10} {row['type']:>8} {row['peer']:>9} "
        f"{row['time_us']:>11.2f} {least_us(row):>11.2f} {alg:>8} {bus:>8} {wrong:>7}"
    )


# The functions below make tables.


def table(head: Sequence[str], rows: Iterable[Sequence[object]], texts: int = 1) -> str:
    """Return a Markdown table that can be read in a terminal, too.

    The first `texts` columns are text.
    """
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    if len(cells) == 1:
        return ""
    wide = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * (n - 1) + ("-" if at < texts else ":") for at, n in enumerate(wide)])
    pads = [str.ljust if at < texts else str.rjust for at in range(len(wide))]
    return "\n".join(
        f"| {' | '.join(pad(c, n) for pad, c, n in zip(pads, each, wide, strict=True))} |"
        for each in cells
    )


def grouped(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def times_table(rows: list[Row], *keys: str) -> str:
    """Return a table with a line for each value of the keys and each size.

    A line has every peer's time, and ratios to bluefog's.
    """
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    pairs = [pair for pair in RATIOS if set(pair) <= set(peers)]
    head = [*keys, "size", *peers]
    for over, under in pairs:
        head += [f"{over} / {under}", "of the leasts"]
    lines = []
    for (*values, size), own in grouped(rows, *keys, "size").items():
        by_peer = {row["peer"]: row for row in own}
        cells = [*map(str, values), size_text(size)]
        cells += [time_text(median_us(by_peer[p])) if p in by_peer else "-" for p in peers]
        for pair in pairs:
            if set(pair) <= set(by_peer):
                over, under = (by_peer[peer] for peer in pair)
                cells += [ratio_text(time(over) / time(under)) for time in (median_us, least_us)]
            else:
                cells += ["-", "-"]
        lines.append(cells)
    return table(head, lines, texts=0)


# The functions below judge goals.


@dataclass
class Goal:
    text: str
    ranks: int
    limit: str
    found: str
    verdict: str  # reached, missed or not measured


def judge(text: str, ranks: int, limit: float, found: float | None, unit: str, least: bool) -> Goal:
    limit_text = f"{'≥' if least else '≤'} {limit:g} {unit}".strip()
    if found is None:
        return Goal(text, ranks, limit_text, "-", "not measured")
    good = found >= limit if least else found <= limit
    verdict = "reached" if good else "missed"
    return Goal(text, ranks, limit_text, f"{found:.3g} {unit}".strip(), verdict)


def goal_table(goals: Iterable[Goal], of: str = "ranks") -> str:
    """Return a table of goals, or nothing if none of them was measured.

    `of` says what the goals count: ranks or hosts.
    """
    goals = list(goals)
    if all(goal.verdict == "not measured" for goal in goals):
        return ""
    rows = ((g.text, g.ranks, g.limit, g.found, g.verdict) for g in goals)
    return table(["goal", of, "limit", "found", "verdict"], rows, texts=5)


# The functions below draw plots and write files.


def plot(rows: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    ops = list(dict.fromkeys(row["op"] for row in rows))
    ranks = sorted({row["ranks"] for row in rows})
    figure = Figure(figsize=(5.2 * len(ranks), 2.7 * len(ops) + 0.6), layout="constrained")
    grid = figure.subplots(len(ops), len(ranks), sharex=True, sharey="row", squeeze=False)
    for op, line_of_axes in zip(ops, grid, strict=True):
        for n, axes in zip(ranks, line_of_axes, strict=True):
            for peer, color in COLORS.items():
                own = [r for r in rows if (r["op"], r["ranks"], r["peer"]) == (op, n, peer)]
                if own:
                    xs, ys = [r["size"] for r in own], [r["time_us"] for r in own]
                    axes.plot(xs, ys, color=color, marker=".", label=peer)
            axes.set(title=f"{op}, {n} ranks", xscale="log", yscale="log")
            axes.set_xscale("log", base=4)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(round(size))))
            axes.tick_params(axis="x", labelsize=7)
            axes.grid(alpha=0.3)
        line_of_axes[0].set_ylabel("time of a call, us")
    for axes in grid[-1]:
        axes.set_xlabel("size")
    lines = {drawn.get_label(): drawn for axes in grid.flat for drawn in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=5, frameon=False)
    figure.savefig(path, dpi=90)


@dataclass
class Report:
    """A Report says what becomes of the measurements of one program."""

    title: str
    sections: Callable[[Any], Iterable[str]]  # returns the Markdown of what a JSON file holds
    plot: Callable[[list[Row], Path], None] | None = None

    def write(self, found: Any, path: Path) -> None:
        """Write JSON at `path`, and the plot and the tables beside it; print the tables."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        if self.plot:
            self.plot(found["rows"], path.with_suffix(".png"))
        print(f"\n{self.write_tables(found, path)}\n{path}\n{path.with_suffix('.md')}")

    def write_tables(self, found: Any, path: Path) -> str:
        parts = [HEAD.format(title=self.title, source=path.name)]
        if isinstance(found, dict) and "machine" in found:
            parts.append("".join(f"- {k}: {v}\n" for k, v in found["machine"].items()))
        if self.plot and path.with_suffix(".png").exists():
            parts.append(f"![times]({path.stem}.png)\n")
        parts += [f"{section}\n" for section in self.sections(found) if section]
        text = "\n".join(parts)
        path.with_suffix(".md").write_text(text)
        return text

    def write_again(self, path: Path, draw: bool) -> None:
        """Write the tables of a JSON file at `path` again, and the plot if `draw` is set."""
        found = json.loads(path.read_text())
        if draw and self.plot:
            self.plot(found["rows"], path.with_suffix(".png"))
        self.write_tables(found, path)
