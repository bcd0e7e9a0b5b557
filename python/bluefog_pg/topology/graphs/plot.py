"""This module draws a topology: which ranks send to which, and how fast that averages."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bluefog_pg.topology.graphs.facts import facts
from bluefog_pg.topology.graphs.spectral import graphs_of, simulate_consensus

if TYPE_CHECKING:
    from collections.abc import Sequence

    import networkx as nx

_COLORS = [f"tab:{name}" for name in ("blue", "orange", "green", "red", "purple", "brown")]
_CIRCUMFERENCE = 850.0  # the length in points of the circle of ranks
_FLOOR = 1e-17  # A log axis cannot show 0, the distance from an exact mean.


def plot(
    topology: nx.DiGraph[int] | Sequence[nx.DiGraph[int]],
    path: str | os.PathLike[str],
    title: str | None = None,
    steps: int = 30,
) -> None:
    """Draw the ranks on a circle with their edges, and the consensus distance over steps.

    This needs matplotlib, but no display.

    Args:
        topology: a DiGraph of nodes 0 .. n-1, or the graphs of a round, each in a color.
        path: the file to write; its ending gives the format, as .png, .svg or .pdf.
        title: the text over the picture.
        steps: how many averagings are simulated.

    Raises:
        ImportError: matplotlib is missing.
        TypeError: `topology` is no networkx.DiGraph of nodes 0 to n-1, or `path` no path.
        IsADirectoryError: `path` is a directory.

    Example:
        >>> import os, tempfile
        >>> from bluefog_pg.topology_util import RingGraph, plot
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     plot(RingGraph(8), f"{folder}/ring.svg", title="A ring of 8")
        ...     os.listdir(folder)
        ['ring.svg']
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plot needs matplotlib, which is missing: pip install 'bluefog_pg[examples]'"
        ) from error
    try:
        place = Path(os.fsdecode(path))
    except TypeError:
        raise TypeError(f"path must be the path of a file, not {path!r}") from None
    if place.is_dir():  # matplotlib would write a file beside the directory.
        raise IsADirectoryError(
            f"path must be a file to write, and {place} is a directory; name one in it, "
            f"as {place / 'topology.png'}"
        )
    graphs = graphs_of(topology, 0)
    told = facts(graphs)
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    circle, curve = figure.subplots(1, 2)
    _draw_circle(circle, graphs)
    _draw_distance(curve, graphs, steps)
    _write(curve, [f"{name}: {value}" for name, value in told.items()])
    figure.suptitle(title or f"{told['ranks']} ranks", fontsize=14)
    figure.savefig(place, dpi=120)


def _write(axes: Any, lines: list[str]) -> None:
    """Write the facts in the upper right corner, which a falling curve leaves free."""
    axes.text(
        *(0.98, 0.97, "\n".join(lines)),
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=9.5,
        linespacing=1.5,
        bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "lightgrey"},
    )


def _draw_circle(axes: Any, graphs: Sequence[nx.DiGraph[int]]) -> None:
    size = len(graphs[0])
    places = [_place(rank, size) for rank in range(size)]
    diameter = min(26.0, 0.62 * _CIRCUMFERENCE / size)  # in points
    for step, graph in enumerate(graphs):
        _draw_edges(axes, graph, places, diameter, step)
    xs, ys = zip(*places, strict=True)
    axes.scatter(xs, ys, s=diameter**2, color="white", edgecolors="black", zorder=3)
    if diameter >= 12:
        for rank, place in enumerate(places):
            axes.annotate(
                str(rank), place, ha="center", va="center", fontsize=0.45 * diameter, zorder=4
            )
    if len(graphs) > 1:
        for step in range(min(len(graphs), len(_COLORS))):
            again = "" if step + len(_COLORS) >= len(graphs) else " …"
            axes.plot([], [], color=_COLORS[step], label=f"step {step}{again}")
        axes.legend(loc="upper left", fontsize=8, frameon=False, borderaxespad=0)
    axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
    axes.set_axis_off()


def _place(rank: int, size: int) -> tuple[float, float]:
    """Return where a rank is drawn; ranks go clockwise from the top."""
    angle = 2 * math.pi * rank / size
    return math.sin(angle), math.cos(angle)


def _draw_edges(
    axes: Any,
    graph: nx.DiGraph[int],
    places: Sequence[tuple[float, float]],
    diameter: float,
    step: int,
) -> None:
    """Draw one line with two heads for both directions of a pair; bend lines of one direction.

    Lines of later steps are bent more, so that they do not hide the earlier ones.
    """
    from matplotlib.patches import FancyArrowPatch

    degree = graph.number_of_edges() / len(graph)
    for i, j in graph.edges:
        goes_back = graph.has_edge(j, i)
        if i == j or (goes_back and i > j):
            continue
        head = "-" if degree > 16 else "<|-|>" if goes_back else "-|>"
        axes.add_patch(
            FancyArrowPatch(
                places[i],
                places[j],
                arrowstyle=head,
                connectionstyle=f"arc3,rad={0.07 * (step % 6) + 0.1 * (not goes_back)}",
                mutation_scale=min(11.0, 0.45 * diameter),
                shrinkA=diameter / 2,
                shrinkB=diameter / 2,
                linewidth=1.0 if degree <= 4 else 0.7,
                color=_COLORS[step % len(_COLORS)],
                alpha=min(0.85, max(0.1, 3.5 / degree)),
            )
        )


def _draw_distance(axes: Any, graphs: Sequence[nx.DiGraph[int]], steps: int) -> None:
    distances = simulate_consensus(graphs, len(graphs[0]), steps)
    axes.semilogy(distances.clip(_FLOOR), marker="o", markersize=3, color="tab:blue")
    axes.set(xlabel="averagings", ylabel="consensus distance")
    axes.grid(which="major", alpha=0.3)
