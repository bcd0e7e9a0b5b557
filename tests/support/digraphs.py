"""This module draws random digraphs for hypothesis, and says what each rank is told of one."""

from __future__ import annotations

import random
from typing import Any

import hypothesis.strategies as st
import networkx as nx
import numpy as np
from hypothesis import HealthCheck, settings

# Rank j multiplies what rank i has by the weight of the edge (i, j); (i, i) is the self weight.
Edges = dict[tuple[int, int], float]
Spec = dict[str, Any]
MODES = ("uniform", "weighted", "explicit", "subset", "dynamic")

weights = st.floats(-2, 2, allow_nan=False).map(lambda w: round(w, 3))
relaxed = settings(
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def edges(draw: st.DrawFn, world: int) -> Edges:
    """Draw a digraph with weights. It may have self-loops, which are the self weights."""
    every = [(i, j) for i in range(world) for j in range(world)]
    return {e: draw(weights) for e in draw(st.lists(st.sampled_from(every), unique=True))}


@st.composite
def specs(draw: st.DrawFn, *modes: str, **more: st.SearchStrategy[Any]) -> Spec:
    """Draw a call of four ranks at most: its graph, how it is given, and what `more` draws."""
    world = draw(st.integers(1, 4))
    return {
        "world": world,
        "edges": draw(edges(world)),
        "mode": draw(st.sampled_from(modes)),
        "seed": draw(st.integers(0, 1000)),
        "async": draw(st.booleans()),
        # `without` has the ranks that are left out of a strict subset of the sources. `by_list` has
        # those that name their receivers by a list, which gives them the weight 1.
        "without": draw(st.sets(st.integers(0, world - 1))),
        "by_list": draw(st.sets(st.integers(0, world - 1))),
        "scale": draw(st.lists(weights, min_size=world, max_size=world)),
        **{name: draw(strategy) for name, strategy in more.items()},
    }


def digraph(spec: Spec) -> nx.DiGraph:
    g = nx.DiGraph()
    g.add_nodes_from(range(spec["world"]))
    g.add_weighted_edges_from((i, j, w) for (i, j), w in spec["edges"].items())
    return g


def sources(graph: Edges, rank: int) -> dict[int, float]:
    return {i: w for (i, j), w in graph.items() if j == rank and i != rank}


def destinations(graph: Edges, rank: int) -> list[int]:
    return [j for (i, j) in graph if i == rank and j != rank]


def plan(spec: Spec, rank: int) -> tuple[dict[str, Any], float, dict[int, float], Any]:
    """Return a rank's keyword arguments, and its self weight, sources and senders' scales.

    The oracle takes all but the keyword arguments.
    """
    graph: Edges = spec["edges"]
    own, src = graph.get((rank, rank), 0.0), sources(graph, rank)
    if spec["mode"] == "uniform":
        share = 1 / (len(src) + 1)
        return {}, share, dict.fromkeys(src, share), None
    if spec["mode"] == "weighted":
        return {}, own, src, None
    if spec["mode"] == "subset":
        src = {i: w for i, w in src.items() if i not in spec["without"]}
    given_weights: dict[str, Any] = {"self_weight": own, "src_weights": src}
    if spec["mode"] != "dynamic":
        return given_weights, own, src, None
    to = destinations(graph, rank)
    by_list = rank in spec["by_list"]
    given_weights["dst_weights"] = to if by_list else {j: spec["scale"][j] for j in to}
    return given_weights, own, src, lambda i: 1.0 if i in spec["by_list"] else spec["scale"][rank]


def row(spec: Spec, rank: int) -> tuple[float, dict[int, float]]:
    """Return the weights of a rank's own tensor and of each source's, with the senders' scales."""
    _, own, src, scale = plan(spec, rank)
    return own, {i: w * (scale(i) if scale else 1.0) for i, w in src.items()}


def orders(spec: Spec, rank: int) -> tuple[list[int], list[int], dict[str, Any]]:
    """Return sources and destinations of a call without weights, in order, and its arguments."""
    src, dst = sorted(sources(spec["edges"], rank)), sorted(destinations(spec["edges"], rank))
    if spec["mode"] != "dynamic":
        return src, dst, {}
    for ranks in (src, dst):
        random.Random(spec["seed"] + rank).shuffle(ranks)
    return src, dst, {"src_ranks": src, "dst_ranks": np.array(dst, dtype=np.int64)}


def prepare(spec: Spec) -> None:
    """Set the topology that calls without a graph of their own use. Ranks call this."""
    import bluefog_pg

    if spec["mode"] != "dynamic":
        bluefog_pg.set_topology(digraph(spec), is_weighted=spec["mode"] == "weighted")
