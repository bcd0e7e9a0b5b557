"""What the functions of this package accept: numbers, ranks, graphs; a sentence for all else."""

from __future__ import annotations

import operator
import reprlib
from typing import TYPE_CHECKING, Any

from bluefog_pg._errors import ArgumentError

if TYPE_CHECKING:
    import networkx as nx


def integer(name: str, value: Any) -> int:
    """`value` as an int, numpy's integers included; TypeError for what is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


def positive(name: str, value: Any) -> int:
    """`value` as an int of at least 1."""
    number = integer(name, value)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number


def rank_below(size: int, name: str, value: Any) -> int:
    """`value` as one of the ranks 0 .. size-1."""
    rank = integer(name, value)
    if not 0 <= rank < size:
        raise ArgumentError(f"{name} must be one of the ranks 0 to {size - 1}, got {rank}")
    return rank


def base_above_one(base: Any) -> int:
    """`base` as an int of at least 2, by an ArgumentError for all else."""
    try:
        number = operator.index(base)
    except TypeError:
        number = 0
    if number < 2:
        raise ArgumentError(f"base must be an integer of at least 2, got {base!r}")
    return number


def size_of(topology: nx.DiGraph[int]) -> int:
    """The number of nodes of a digraph whose nodes are the ranks 0 .. n-1.

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
