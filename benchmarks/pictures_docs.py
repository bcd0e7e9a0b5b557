"""Draw the pictures of the documentation: python benchmarks/pictures_docs.py.

They are SVG files in docs/pictures. It needs matplotlib, networkx and bluefog_pg. Two pictures are
sketches without figures, two are computed from graphs, and one shows benchmarks/results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pictures import OURS, PICTURES, THEIRS, results

from bluefog_pg import topology_util

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = tuple[float, float]
RANKS = 8
GRAY, GREEN, RED = "0.45", "tab:green", "tab:red"
# An arrow ends at the rim of its rank's circle.
SHRINK = 9.5


def on_circle(ranks: int) -> dict[int, Place]:
    """Return the places of ranks on a circle, clockwise from the top."""
    angles = {rank: math.pi / 2 - 2 * math.pi * rank / ranks for rank in range(ranks)}
    return {rank: (math.cos(angle), math.sin(angle)) for rank, angle in angles.items()}


def arrow(axes: Axes, start: Place, end: Place, color: str = GRAY, bend: float = 0.0) -> None:
    style = {"arrowstyle": "-|>", "color": color, "shrinkA": SHRINK, "shrinkB": SHRINK, "lw": 1.1}
    axes.annotate("", end, start, arrowprops={**style, "connectionstyle": f"arc3,rad={bend}"})


def ranks_at(axes: Axes, places: dict[int, Place], color: str = OURS) -> None:
    for rank, (x, y) in places.items():
        axes.plot(x, y, "o", color=color, markersize=16)
        axes.text(x, y, str(rank), color="white", ha="center", va="center", fontsize=8.5)


def empty(axes: Axes, title: str, x: Place = (-1.35, 1.35), y: Place = (-1.35, 1.35)) -> None:
    axes.set(xlim=x, ylim=y, aspect="equal", title=title)
    axes.set_axis_off()


def edges_of(axes: Axes, places: dict[int, Place], edges: Iterable[tuple[int, int]]) -> None:
    known = {(start, end) for start, end in edges if start != end}
    for start, end in sorted(known):
        bend = 0.12 if (end, start) in known else 0.0
        arrow(axes, places[start], places[end], bend=bend)
    ranks_at(axes, places)


def graphs(figure: Figure) -> None:
    """Draw four topologies of the same ranks."""
    circle = on_circle(RANKS)
    center = {0: (0.0, 0.0)} | {rank + 1: at for rank, at in on_circle(RANKS - 1).items()}
    rows, columns = topology_util.MeshGrid2DGraph(RANKS), 4
    grid = {r: ((r % columns - 1.5) * 0.75, 0.45 - 0.9 * (r // columns)) for r in range(RANKS)}
    drawn = {
        "ring": (circle, topology_util.RingGraph(RANKS)),
        "exponential-2": (circle, topology_util.ExponentialTwoGraph(RANKS)),
        "grid": (grid, rows),
        "star": (center, topology_util.StarGraph(RANKS)),
    }
    for axes, (title, (places, graph)) in zip(figure.subplots(1, 4), drawn.items(), strict=True):
        empty(axes, title)
        edges_of(axes, places, graph.edges)


def one_peer(figure: Figure) -> None:
    """Draw the steps of the one-peer exponential-2 schedule."""
    steps = topology_util.OnePeerExponentialTwoGraphs(RANKS)
    for number, (axes, graph) in enumerate(
        zip(figure.subplots(1, len(steps)), steps, strict=True), start=1
    ):
        empty(axes, f"step {number}")
        edges_of(axes, on_circle(RANKS), graph.edges)


def operations(figure: Figure) -> None:
    """Sketch who sends what to whom in three operations of four ranks."""
    places = on_circle(4)
    far = [(0, 2), (1, 3), (2, 0), (3, 1)]
    near = [(rank, (rank + side) % 4) for rank in range(4) for side in (1, 3)]
    everyone, neighbors, put = figure.subplots(1, 3)
    empty(everyone, "all_reduce", y=(-1.9, 1.35))
    edges_of(everyone, places, [*near, *far])
    empty(neighbors, "neighbor_allreduce, in a ring", y=(-1.9, 1.35))
    edges_of(neighbors, places, near)
    empty(put, "win_put", y=(-1.9, 1.35))
    arrow(put, places[1], places[2], GREEN, bend=-0.2)
    arrow(put, places[1], places[0], GREEN, bend=0.2)
    ranks_at(put, places)
    for axes, text in (
        (everyone, "each rank needs every other one"),
        (neighbors, "each rank needs its neighbors"),
        (put, "rank 1 writes into its neighbors'\nmemory, and needs nobody"),
    ):
        axes.text(0, -1.45, text, ha="center", va="top", fontsize=8.5)


def waiting(figure: Figure) -> None:
    """Sketch steps of four ranks, of which one is slow, with and without waiting."""
    together, alone = figure.subplots(2, 1, sharex=True)
    slow, slow_step, exchange, put, rounds = 3, 2.5, 0.3, 0.1, 3
    end = rounds * (slow_step + exchange)
    for rank in range(4):
        where, own = (rank - 0.35, 0.7), slow_step if rank == slow else 1.0
        starts = [at * end / rounds for at in range(rounds)]
        together.broken_barh([(at, own) for at in starts], where, color=OURS)
        waits = [(at + own, slow_step - own) for at in starts if rank != slow]
        together.broken_barh(waits, where, color="0.85")
        exchanges = [(at + slow_step, exchange - 0.08) for at in starts]
        together.broken_barh(exchanges, where, color=THEIRS)
        count = int(end / (own + put))
        step = end / count
        begins = [at * step for at in range(count)]
        alone.broken_barh([(at, step - put) for at in begins], where, color=OURS)
        alone.broken_barh([(at + step - put, put) for at in begins], where, color=GREEN)
    together.set_title("synchronous: all ranks wait for the slow one")
    alone.set_title("asynchronous: the slow rank is the only slow one")
    alone.set_xlabel("time")
    for axes in (together, alone):
        axes.set(yticks=range(4), yticklabels=[f"rank {rank}" for rank in range(4)], xticks=[])
        axes.invert_yaxis()
        axes.spines[["top", "right", "left"]].set_visible(False)
    colors = {"computes": OURS, "waits": "0.85", "exchanges": THEIRS, "puts": GREEN}
    bars = [together.barh(0, 0, color=color) for color in colors.values()]
    figure.legend(bars, list(colors), loc="outside lower center", ncols=4, frameon=False)


def consensus(figure: Figure) -> None:
    """Draw how fast averages over graphs bring 16 ranks to one value."""
    axes, ranks, steps = figure.subplots(), 16, 30
    shown = {
        "ring": topology_util.RingGraph(ranks),
        "grid": topology_util.MeshGrid2DGraph(ranks),
        "exponential-2": topology_util.ExponentialTwoGraph(ranks),
        "one-peer exponential-2": topology_util.OnePeerExponentialTwoGraphs(ranks),
    }
    lowest = 1e-6
    for (name, graph), line in zip(shown.items(), (":", "-.", "--", "-"), strict=True):
        distances = topology_util.simulate_consensus(graph, ranks, steps)
        left = [max(distance / distances[0], lowest / 10) for distance in distances]
        axes.plot(left, line, label=name, color=OURS if "one" in name else GRAY)
    axes.set(yscale="log", ylim=(lowest, 2), xlabel="averages", ylabel="distance from the mean")
    axes.set_title(f"{ranks} ranks that begin apart")
    axes.legend(frameon=False, loc="center right")
    axes.spines[["top", "right"]].set_visible(False)


def hosts(figure: Figure) -> None:
    """Draw the time of a training step over the number of hosts, from benchmarks/results."""
    axes = figure.subplots()
    scaling = results("training")["scaling"]
    numbers = [int(number) for number in scaling]
    for method, title, color in (
        ("ddp gloo", "DDP on gloo", THEIRS),
        ("awc", "one-peer averages", OURS),
        ("none", "no communication", GRAY),
    ):
        times = [1000 * row[f"{method} sgd0.1"] for row in scaling.values()]
        axes.plot(numbers, times, color=color, marker="o", markersize=3, label=title)
    axes.set(xscale="log", xlabel="hosts, at 1 Gbit/s each", ylabel="ms a step", ylim=(0, None))
    axes.set_xticks(numbers, [str(number) for number in numbers])
    axes.minorticks_off()
    axes.set_title("a step that computes for 200 ms")
    axes.legend(frameon=False, loc="lower left")
    axes.spines[["top", "right"]].set_visible(False)


DRAWN: dict[Callable[[Figure], None], tuple[float, float]] = {
    graphs: (7.6, 2.2),
    one_peer: (5.8, 2.2),
    operations: (6.8, 3.2),
    waiting: (5.6, 3.6),
    consensus: (4.6, 2.8),
    hosts: (4.4, 2.8),
}


def main(folder: Path = PICTURES) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    for draw, size in DRAWN.items():
        name = draw.__name__
        # The same code gives the same file.
        settings = {"svg.hashsalt": name, "font.size": 9, "svg.fonttype": "none"}
        with rc_context({**settings, "axes.titlesize": 10}):
            figure = Figure(figsize=size, layout="constrained")
            draw(figure)
            figure.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
