"""This module has sequences of sparse graphs that average any number of ranks exactly."""

from __future__ import annotations

import functools
from collections import defaultdict
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from bluefog_pg.topology.graphs.arguments import base_above_one, positive, require_edges
from bluefog_pg.topology.graphs.digraph import symmetric

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import networkx as nx

# The pairs of one step are (rank, rank, weight) for the ranks that exchange. No rank exchanges with
# more than base - 1 others.
Pairs = list[tuple[int, int, float]]


def BaseKGraphs(size: int, base: int = 2) -> list[nx.DiGraph[int]]:
    """Return graphs that together average exactly: after one round every rank has the mean of all.

    This holds for any size. Each rank exchanges with at most base - 1 others a step, and there are
    at most 2 log_base(size) + 2 steps. The construction is the Base-(k+1) graph with k = base - 1,
    of Takezawa, Sato, Bao, Niwa, Yamada, "Beyond Exponential Graph: Communication-Efficient
    Topologies for Decentralized Learning via Finite-time Convergence", NeurIPS 2023. With base 2 a
    rank has one peer a step, as in one-peer exponential-2, which is exact for powers of two alone.

    Args:
        size: number of ranks.
        base: one more than the neighbors that a rank may have in a step.

    Returns:
        One symmetric, doubly stochastic DiGraph a step; for one rank a single graph without
        neighbors. Step t of a training takes `graphs[t % len(graphs)]`: `GetRecvWeights` and
        `GetSendWeights` say what a rank does in it.

    Raises:
        ValueError: `size` is not positive.
        ArgumentError: `base` is not an integer of at least 2.

    Example:
        >>> from bluefog_pg.topology_util import BaseKGraphs, simulate_consensus
        >>> graphs = BaseKGraphs(6)
        >>> len(graphs)
        4
        >>> print(f"{simulate_consensus(graphs, 6, steps=4)[-1]:.6f}")
        0.000000
    """
    size, base = positive("size", size), base_above_one(base)
    base = min(base, max(size, 2))  # A base of `size` takes one step already.
    require_edges("base", size, base)
    return [symmetric(size, pairs) for pairs in _shortest(range(size), base) or [[]]]


def _shortest(ranks: Sequence[int], base: int) -> list[Pairs]:
    """Return the shortest steps: by cubes if the size allows it, else the better of two ways.

    One way splits all ranks by digits. The other one splits them into groups that then meet by
    cubes.
    """
    groups = _groups_for_cubes(ranks, base)
    if len(groups) == len(ranks):
        return _by_cubes(ranks, base)
    at_once = _by_digits(ranks, base)
    inside = _together(_by_digits(group, base) for group in groups)
    across = _together(_by_cubes(peers, base) for peers in zip(*groups, strict=True))
    return min(at_once, inside + across, key=len)


def _groups_for_cubes(ranks: Sequence[int], base: int) -> list[Sequence[int]]:
    """Return as many groups as can meet by cubes: a group's size has only larger prime factors."""
    length = len(ranks)
    for factor in range(2, base + 1):
        while length % factor == 0:
            length //= factor
    return [ranks[start : start + length] for start in range(0, len(ranks), length)]


def _by_cubes(ranks: Sequence[int], base: int) -> list[Pairs]:
    """Return steps in which ranks are the points of a box with sides of at most `base`.

    Each step averages along one side.
    """
    steps, stride = [], 1
    for side in _fewest_factors(len(ranks), base):
        steps.append(
            [
                (ranks[here], ranks[here + distance * stride], 1.0 / side)
                for here in range(len(ranks))
                for distance in range(1, side - here // stride % side)
            ]
        )
        stride *= side
    return steps


def _by_digits(ranks: Sequence[int], base: int) -> list[Pairs]:
    """Split the ranks as the digits of their number say; each part averages, then hands it down.

    A part is `digit` blocks of a power of `base`. Once every part agrees on its own mean, each
    rank of the smaller parts exchanges with one rank of each block of the largest. The weight
    (block over all of them) moves the mean of every block to the common one, and that of the
    smaller parts, too. The blocks average once more; the next part does the same with the rest.
    """
    timeline: defaultdict[int, Pairs] = defaultdict(list)

    def put(start: int, steps: Iterable[Pairs]) -> None:
        for time, pairs in enumerate(steps, start):
            timeline[time] += pairs

    parts = _parts(ranks, base)
    for part in parts:
        put(0, _by_cubes([rank for block in part for rank in block], base))
    agreed = len(timeline)
    for turn, part in enumerate(parts[:-1]):
        rest = [rank for later in parts[turn + 1 :] for block in later for rank in block]
        weight = len(part[0]) / (len(part) * len(part[0]) + len(rest))
        meeting = [
            (own, other, weight) for block in part for own, other in zip(block, rest, strict=False)
        ]
        put(agreed + turn, [meeting])
        for block in part:
            put(agreed + turn + 1, _by_cubes(block, base))
    return [timeline[time] for time in sorted(timeline)]


def _parts(ranks: Sequence[int], base: int) -> list[list[Sequence[int]]]:
    """Return the blocks of base^p ranks for each non-zero digit of the number of ranks.

    The largest blocks come first.
    """
    parts, start, length = [], 0, 1
    while length * base <= len(ranks):
        length *= base
    while length:
        end = start + (len(ranks) - start) // length * length
        if end > start:
            parts.append([ranks[at : at + length] for at in range(start, end, length)])
        start, length = end, length // base
    return parts


def _together(sequences: Iterable[list[Pairs]]) -> list[Pairs]:
    """Merge the steps of different ranks that run at the same time."""
    return [list(chain(*steps)) for steps in zip_longest(*sequences, fillvalue=())]


@functools.cache
def _fewest_factors(size: int, largest: int) -> tuple[int, ...]:
    """Return the shortest product of integers up to `largest` that is `size`; there must be one."""
    if size == 1:
        return ()
    divisors = (factor for factor in range(largest, 1, -1) if size % factor == 0)
    return min(((f, *_fewest_factors(size // f, largest)) for f in divisors), key=len)
