"""This module checks the arguments of this package's functions: numbers, ranks, graphs."""

from __future__ import annotations

import operator
import reprlib
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.errors import ArgumentError
from bluefog_pg._core.neighborhood import as_float

if TYPE_CHECKING:
    import networkx as nx


# These limits are far beyond what groups have. More would fill the memory before any error.
_MOST_RANKS = 2**16
_MOST_EDGES = 2**24


def integer(name: str, value: Any) -> int:
    """Return `value` as an int, even if it is one of numpy's integers.

    Raises:
        TypeError: `value` is no integer, or it is a bool.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{name} must be an integer, not {value!r}")


def real(name: str, value: Any) -> float:
    """Return `value` as a float.

    Raises:
        TypeError: `value` is no number: a bool or a string, for example.
    """
    try:
        if not isinstance(value, bool):
            return as_float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name} must be a number, not {value!r}")


def positive(name: str, value: Any) -> int:
    """Return `value` as an int from 1 to the largest number of ranks that a graph may have.

    Raises:
        TypeError: `value` is no integer.
        ValueError: it is out of that range.
    """
    number = integer(name, value)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    if number > _MOST_RANKS:
        raise ValueError(f"{name} must be at most {_MOST_RANKS}, got {number}")
    return number


def require_edges(name: str, size: int, each: int) -> None:
    """Raise ValueError if `size` ranks with `each` edges do not fit into memory."""
    if size * each > _MOST_EDGES:
        raise ValueError(
            f"{name} must be less: {size} ranks with {each} edges each are more than "
            f"{_MOST_EDGES} edges"
        )


def rank_below(size: int, name: str, value: Any) -> int:
    """Return `value` as one of the ranks 0 .. size-1.

    Raises:
        TypeError: `value` is no integer.
        ArgumentError: it is none of the ranks.
    """
    rank = integer(name, value)
    if not 0 <= rank < size:
        raise ArgumentError(f"{name} must be one of the ranks 0 to {size - 1}, got {rank}")
    return rank


def base_above_one(base: Any) -> int:
    """Return `base` as an int of at least 2, or raise ArgumentError."""
    try:
        number = integer("base", base)
    except TypeError:
        number = 0
    if number < 2:
        raise ArgumentError(f"base must be an integer of at least 2, got {base!r}")
    return number


def require_graph(name: str, graph: Any) -> None:
    """Raise TypeError unless `graph` is a networkx graph without parallel edges."""
    import networkx as nx

    if not isinstance(graph, nx.Graph) or graph.is_multigraph():
        raise TypeError(f"{name} must be a networkx.DiGraph, not {type(graph).__name__}")


def size_of(topology: nx.DiGraph[int]) -> int:
    """Return the number of nodes of a digraph whose nodes are the ranks 0 .. n-1.

    Raises:
        TypeError: `topology` is no networkx.DiGraph, its nodes are others, or it has none.
    """
    import networkx as nx

    if not isinstance(topology, nx.DiGraph) or topology.is_multigraph():
        raise TypeError(f"topology must be a networkx.DiGraph, not {type(topology).__name__}")
    size = len(topology)
    if not size or set(topology) != set(range(size)):
        raise TypeError(
            f"the nodes of a topology must be 0 to n-1; these are {reprlib.repr(list(topology))}"
        )
    return size
