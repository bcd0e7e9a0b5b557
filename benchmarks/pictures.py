"""Draw the pictures of the README from the results of benchmarks: python benchmarks/pictures.py.

They are SVG files in docs/pictures. It needs matplotlib.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import COLORS, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "pictures"
RANKS = 4
OURS, THEIRS = COLORS["bluefog"], COLORS["gloo"]


def results(name: str) -> Any:
    return json.loads((HERE / "results" / f"{name}.json").read_text())


def all_reduce(axes: Axes) -> None:
    """Draw the time of all_reduce over its size."""
    rows = [
        row
        for row in results("collectives")["rows"]
        if row["op"] == "all_reduce" and row["ranks"] == RANKS
    ]
    for peer, color in (("gloo", THEIRS), ("bluefog", OURS)):
        points = sorted((row["size"], row["time_us"]) for row in rows if row["peer"] == peer)
        sizes, times = zip(*points, strict=True)
        axes.plot(sizes, times, color=color, marker="o", markersize=3, label=peer)
    ticks = [sizes[0], 1 << 10, 64 << 10, 1 << 20, sizes[-1]]
    axes.set(xscale="log", yscale="log", ylabel="time of a call (µs)")
    axes.set_title(f"all_reduce, {RANKS} ranks on one host")
    axes.set_xticks(ticks, [size_text(size) for size in ticks])
    axes.minorticks_off()
    axes.legend(frameon=False)


def slow_rank(axes: Axes) -> None:
    """Draw the loss over the time of make demo's trainings beside a slow rank."""
    curves = results("demo")["curves"]
    for name, color in (("DDP", THEIRS), ("win_put", OURS)):
        points = curves[f"{name}, a rank 5 x slower"]
        axes.plot(*zip(*points, strict=True), color=color, label=name)
    axes.set(yscale="log", xlabel="seconds", ylabel="training loss of rank 0")
    axes.set_title("one of 4 ranks is 5 x slower")
    axes.legend(frameon=False)


def members(axes: Axes) -> None:
    """Draw how long a group takes to go on without a rank."""
    rows = results("reconfigure")["rows"]
    medians = {
        name: 1000 * statistics.median(row["shrink"] for row in rows if row["backend"] == backend)
        for name, backend in (("gloo", "gloo"), ("bluefog", "bluefog"))
    }
    bars(axes, medians, "ms")
    axes.set_title("from 8 ranks to 7, with an all_reduce")


def bars(axes: Axes, values: dict[str, float], unit: str) -> None:
    colors = [THEIRS if "gloo" in name else OURS for name in values]
    drawn = axes.barh(list(values), list(values.values()), color=colors)
    axes.bar_label(drawn, [f"{value:.3g} {unit}" for value in values.values()], padding=4)
    axes.set(xlim=(0, 1.25 * max(values.values())), xlabel=unit)
    axes.invert_yaxis()


def draw(name: str, into: Callable[[Axes], None], folder: Path) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # The same results give the same file.
    with rc_context({"svg.hashsalt": name, "font.size": 9, "svg.fonttype": "none"}):
        figure = Figure(figsize=(4.2, 2.4), layout="constrained")
        axes = figure.subplots()
        into(axes)
        axes.spines[["top", "right"]].set_visible(False)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def main(folder: Path = PICTURES) -> None:
    for each in (all_reduce, slow_rank, members):
        draw(each.__name__, each, folder)


if __name__ == "__main__":
    main()
