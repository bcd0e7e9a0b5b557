"""This module has schedules, which say whom a rank sends to and receives from in each step."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.errors import ArgumentError
from bluefog_pg.topology.graphs.arguments import integer, positive, rank_below, size_of
from bluefog_pg.topology.graphs.digraph import circulant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import networkx as nx

# The first list has the ranks to send to, the second those to receive from, both ascending.
SendRecvRanks = tuple[list[int], list[int]]


def GetDynamicOnePeerSendRecvRanks(
    topo: nx.DiGraph[int], self_rank: int
) -> Iterator[SendRecvRanks]:
    """Return a schedule in which every rank sends to one out-neighbor, the next one each step.

    The order is clockwise, by (neighbor - rank) mod n. Where all ranks send to the same distances,
    as in rings and exponential graphs, each receives from one peer a step, elsewhere from none or
    several. A rank without out-neighbors sends to nobody. BlueFog has this function.

    Args:
        topo: a digraph of nodes 0 .. n-1; self-loops do not matter, nor do weights.
        self_rank: the rank whose part is wanted.

    Returns:
        An endless iterator of ([send rank], [receive ranks]).

    Raises:
        TypeError: `topo` is no networkx.DiGraph of nodes 0 to n-1.
        ArgumentError: `self_rank` is none of its ranks.

    Example:
        >>> from itertools import islice
        >>> from bluefog_pg.topology_util import ExponentialTwoGraph, GetDynamicOnePeerSendRecvRanks
        >>> steps = GetDynamicOnePeerSendRecvRanks(ExponentialTwoGraph(4), self_rank=0)
        >>> list(islice(steps, 3))
        [([1], [3]), ([2], [2]), ([1], [3])]
    """
    size = size_of(topo)
    rank = rank_below(size, "self_rank", self_rank)

    def clockwise(source: int) -> list[int]:
        others = [int(other) for other in topo.successors(source) if other != source]
        return sorted(others, key=lambda other: (other - source) % size)

    mine = clockwise(rank)
    theirs = {int(r): clockwise(r) for r in sorted(topo.predecessors(rank))}
    return (
        (
            _turn(mine, step),
            [source for source, near in theirs.items() if _turn(near, step) == [rank]],
        )
        for step in count()
    )


# BlueFog's first versions had the function by this name.
GetDynamicSendRecvRanks = GetDynamicOnePeerSendRecvRanks


def GetExp2DynamicSendRecvMachineRanks(
    world_size: int, local_size: int, self_rank: int, local_rank: int
) -> Iterator[SendRecvRanks]:
    """Return one-peer exponential-2 between machines: m sends to m + 1, m + 2, m + 4, ... in turn.

    BlueFog has this function.

    Args:
        world_size: number of ranks.
        local_size: number of ranks of one machine, which are consecutive.
        self_rank: the rank whose part is wanted.
        local_rank: its place on its machine, self_rank mod local_size.

    Returns:
        An endless iterator of ([send machine], [receive machine]).

    Raises:
        ArgumentError: the ranks are not `local_size` consecutive ones on each of two or more
            machines.

    Example:
        >>> from itertools import islice
        >>> from bluefog_pg.topology_util import GetExp2DynamicSendRecvMachineRanks
        >>> steps = GetExp2DynamicSendRecvMachineRanks(16, 4, self_rank=5, local_rank=1)
        >>> list(islice(steps, 3))
        [([2], [0]), ([3], [3]), ([2], [0])]
    """
    machines, machine, local = _place(world_size, local_size, self_rank)
    if local != integer("local_rank", local_rank):
        raise ArgumentError(
            f"local_rank must be self_rank mod local_size, {local}, got {local_rank}: "
            "each machine must have consecutive ranks"
        )
    if machines < 2:
        raise ArgumentError(
            f"machines must be at least two, but local_size {local_size} is world_size {world_size}"
        )
    return (_exchange(range(machines), machine, _exp2(machines, step)) for step in count())


def GetInnerOuterRingDynamicSendRecvRanks(
    world_size: int, local_size: int, self_rank: int
) -> Iterator[SendRecvRanks]:
    """Return rings inside and between machines: one rank of each goes outside, in turn.

    At step t local rank t mod L sends to its like on the next machine, and the other L - 1 ranks of
    a machine send to the next one among them. On a single machine the rank whose turn it is to go
    outside rests. BlueFog has this function.

    Args:
        world_size: number of ranks.
        local_size: L, the number of ranks of one machine, which are consecutive; at least 3.
        self_rank: the rank whose part is wanted.

    Returns:
        An endless iterator of ([send rank], [receive rank]); ([], []) where the rank rests.

    Raises:
        ArgumentError: `world_size` is no multiple of `local_size`, or that is below 3.

    Example:
        >>> from itertools import islice
        >>> from bluefog_pg.topology_util import GetInnerOuterRingDynamicSendRecvRanks
        >>> steps = GetInnerOuterRingDynamicSendRecvRanks(6, 3, self_rank=0)
        >>> list(islice(steps, 3))
        [([3], [3]), ([2], [2]), ([1], [1])]
    """
    return _inner_outer(world_size, local_size, self_rank, lambda _members, _step: 1)


def GetInnerOuterExpo2DynamicSendRecvRanks(
    world_size: int, local_size: int, self_rank: int
) -> Iterator[SendRecvRanks]:
    """Return inner and outer schedules with one-peer exponential-2 in place of each ring.

    The distance is 2^t in turn; the rest is as in `GetInnerOuterRingDynamicSendRecvRanks`. Where
    the number of distances between machines and L have a common factor, a local rank goes the same
    few distances outside all the time; the averages spread by way of the other ranks. BlueFog has
    this function.

    Args:
        world_size: number of ranks.
        local_size: L, the number of ranks of one machine, which are consecutive; at least 3.
        self_rank: the rank whose part is wanted.

    Returns:
        An endless iterator of ([send rank], [receive rank]); ([], []) where the rank rests.

    Raises:
        ArgumentError: `world_size` is no multiple of `local_size`, or that is below 3.

    Example:
        >>> from itertools import islice
        >>> from bluefog_pg.topology_util import GetInnerOuterExpo2DynamicSendRecvRanks
        >>> steps = GetInnerOuterExpo2DynamicSendRecvRanks(8, 4, self_rank=0)
        >>> list(islice(steps, 3))
        [([4], [4]), ([3], [2]), ([1], [3])]
    """
    return _inner_outer(world_size, local_size, self_rank, _exp2)


def OnePeerExponentialTwoGraphs(size: int) -> list[nx.DiGraph[int]]:
    """Return the steps of one-peer exponential-2: in each step a rank averages with one other.

    Both weigh one half. Rank i sends to i + 2^t (mod `size`). For a power of two one round of
    log2(size) steps is the exact mean, from whichever step it begins (Ying et al., NeurIPS 2021).
    For other sizes it is not: `BaseKGraphs` are exact for all.

    Args:
        size: number of ranks.

    Returns:
        One doubly stochastic DiGraph for each 2^t below `size`; for one rank a single graph without
        neighbors. Step t of a training takes `graphs[t % len(graphs)]`.

    Raises:
        ValueError: `size` is not positive.

    Example:
        >>> from bluefog_pg.topology_util import OnePeerExponentialTwoGraphs, simulate_consensus
        >>> graphs = OnePeerExponentialTwoGraphs(8)
        >>> [sorted(graph[0]) for graph in graphs]
        [[0, 1], [0, 2], [0, 4]]
        >>> print(f"{simulate_consensus(graphs, 8, steps=3)[-1]:.6f}")
        0.000000
    """
    size = positive("size", size)
    return [circulant(size, [2**t]) for t in range(max(1, (size - 1).bit_length()))]


def _turn(near: Sequence[int], step: int) -> list[int]:
    return [near[step % len(near)]] if near else []


def _inner_outer(
    world_size: int, local_size: int, self_rank: int, distance: Callable[[int, int], int]
) -> Iterator[SendRecvRanks]:
    """Return the schedule of a rank that exchanges inside its machine, and in turn outside.

    `distance(members, step)` is how far ranks send on a circle of that many members.
    """
    _, machine, local = _place(world_size, local_size, self_rank)
    if local_size < 3:
        raise ArgumentError(
            f"local_size must be at least 3, got {local_size}: one rank goes outside and those "
            "that stay need a peer"
        )

    def ranks_at(step: int) -> SendRecvRanks:
        outside = step % local_size
        circle: Sequence[int]
        if local == outside:
            circle, place = range(local, world_size, local_size), machine
        else:
            first = machine * local_size
            circle = [r for r in range(first, first + local_size) if r != first + outside]
            place = circle.index(self_rank)
        return _exchange(circle, place, distance(len(circle), step))

    return (ranks_at(step) for step in count())


def _exchange(circle: Sequence[int], place: int, distance: int) -> SendRecvRanks:
    size = len(circle)
    if size == 1:
        return [], []
    return [circle[(place + distance) % size]], [circle[(place - distance) % size]]


def _exp2(members: int, step: int) -> int:
    """Return the power of two below `members` whose turn it is at this step."""
    return 1 << step % max(1, (members - 1).bit_length())


def _place(world_size: Any, local_size: Any, self_rank: Any) -> tuple[int, int, int]:
    """Return the number of machines, the rank's machine, and the rank's place on it."""
    world_size, local_size = positive("world_size", world_size), positive("local_size", local_size)
    if world_size % local_size:
        raise ArgumentError(
            f"world_size must be a multiple of local_size, got {world_size} and {local_size}: "
            "each machine must have the same number of ranks"
        )
    machine, local = divmod(rank_below(world_size, "self_rank", self_rank), local_size)
    return world_size // local_size, machine, local
