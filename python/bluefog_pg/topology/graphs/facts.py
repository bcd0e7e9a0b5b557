"""This module says the facts of a topology in few words, for plots and the command line."""

from __future__ import annotations

from functools import reduce
from operator import matmul
from typing import TYPE_CHECKING

from bluefog_pg.topology.graphs.spectral import doubly_stochastic, gap, steps_to_mean, weight_matrix

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import networkx as nx

    from bluefog_pg.topology.graphs.spectral import Matrix

_TOLERANCE = 1e-3  # the tolerance of the mixing time
_EXACT = 1e-12


def facts(graphs: Sequence[nx.DiGraph[int]]) -> dict[str, str]:
    """Return the names and values, as text, of the facts of one graph, or of a round's graphs."""
    told = {"ranks": str(len(graphs[0]))}
    if len(graphs) > 1:
        told["steps of a round"] = str(len(graphs))
    told["in-degree"] = _span(_others(graph.pred[rank], rank) for graph in graphs for rank in graph)
    told["out-degree"] = _span(_others(graph[rank], rank) for graph in graphs for rank in graph)
    told["edges per step"] = _span(sum(i != j for i, j in graph.edges) for graph in graphs)
    return told | _averaging(graphs)


def _averaging(graphs: Sequence[nx.DiGraph[int]]) -> dict[str, str]:
    matrices = [weight_matrix(graph) for graph in graphs]
    if not all(map(doubly_stochastic, matrices)):
        return {"doubly stochastic": "no"}
    all_steps = reduce(matmul, matrices)
    of_what = " of a round" if len(graphs) > 1 else ""
    return {
        "doubly stochastic": "yes",
        "spectral gap": f"{gap(all_steps):.4g}{of_what}",
        "mixing time": _duration(all_steps, len(graphs)),
    }


def _duration(all_steps: Matrix, steps_a_round: int) -> str:
    import numpy as np

    rounds = steps_to_mean(all_steps, _TOLERANCE)
    if not isinstance(rounds, int):
        return "the ranks never agree"
    steps = rounds * steps_a_round
    is_exact = gap(np.linalg.matrix_power(all_steps, rounds)) > 1 - _EXACT
    left = ", then exact" if is_exact else f" to {_TOLERANCE:g}"
    return f"{steps} step{'s' * (steps != 1)}{left}"


def _others(near: Iterable[int], rank: int) -> int:
    return sum(other != rank for other in near)


def _span(numbers: Iterable[int]) -> str:
    found = set(numbers)
    low, high = min(found), max(found)
    return str(low) if low == high else f"{low} to {high}"
