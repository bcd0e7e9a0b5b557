"""This module asks all ranks for the other ends of edges, of which each rank knows its own end."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Literal, overload

from bluefog_pg._core.errors import ArgumentError
from bluefog_pg._core.groups import resolve, who

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt
    import torch.distributed as dist

    Matrix = npt.NDArray[np.float64]
    Table = npt.NDArray[np.uint8]


@overload
def InferSourceFromDestinationRanks(
    dst_ranks: Iterable[int],
    construct_adjacency_matrix: Literal[False] = ...,
    group: dist.ProcessGroup | None = ...,
) -> list[int]: ...
@overload
def InferSourceFromDestinationRanks(
    dst_ranks: Iterable[int],
    construct_adjacency_matrix: Literal[True],
    group: dist.ProcessGroup | None = ...,
) -> tuple[list[int], Matrix]: ...
def InferSourceFromDestinationRanks(
    dst_ranks: Iterable[int],
    construct_adjacency_matrix: bool = False,
    group: dist.ProcessGroup | None = None,
) -> list[int] | tuple[list[int], Matrix]:
    """Return the ranks that send to this one, where every rank says whom it sends to.

    Collective: one all_gather of n bytes. Bad ranks raise on their rank alone, before it; the
    others then wait for it until the group's timeout. BlueFog has this function.

    Args:
        dst_ranks: the group ranks that this rank sends to, without itself.
        construct_adjacency_matrix: return the weights, too.
        group: the process group, which must take CPU tensors; None, the default one.

    Returns:
        The source ranks, ascending. With the matrix (sources, W): W[i, j], float64 (n, n), is the
        weight of the edge i -> j if every rank weighs itself and its sources alike: columns sum to
        one.

    Raises:
        ArgumentError: ranks that are no integers, not of the group, named twice, or this rank.

    Example:
        >>> next_rank = (bf.rank() + 1) % bf.size()
        >>> sources = bf.topology_util.InferSourceFromDestinationRanks([next_rank])
        >>> sources == [(bf.rank() - 1) % bf.size()]
        True
    """
    table = _gather(dst_ranks, "dst_ranks", group)
    named_me = _named(table, resolve(group))
    return (named_me, _uniform(table)) if construct_adjacency_matrix else named_me


@overload
def InferDestinationFromSourceRanks(
    src_ranks: Iterable[int],
    construct_adjacency_matrix: Literal[False] = ...,
    group: dist.ProcessGroup | None = ...,
) -> list[int]: ...
@overload
def InferDestinationFromSourceRanks(
    src_ranks: Iterable[int],
    construct_adjacency_matrix: Literal[True],
    group: dist.ProcessGroup | None = ...,
) -> tuple[list[int], Matrix]: ...
def InferDestinationFromSourceRanks(
    src_ranks: Iterable[int],
    construct_adjacency_matrix: bool = False,
    group: dist.ProcessGroup | None = None,
) -> list[int] | tuple[list[int], Matrix]:
    """Return the ranks that this one sends to, where every rank says from whom it receives.

    Collective: one all_gather of n bytes. Bad ranks raise on their rank alone, before it; the
    others then wait for it until the group's timeout. BlueFog has this function.

    Args:
        src_ranks: the group ranks that this rank receives from, without itself.
        construct_adjacency_matrix: return the weights, too.
        group: the process group, which must take CPU tensors; None, the default one.

    Returns:
        The destination ranks, ascending. With the matrix (destinations, W): W[i, j], float64
        (n, n), is the weight of the edge i -> j if every rank weighs itself and its sources alike:
        columns sum to one.

    Raises:
        ArgumentError: ranks that are no integers, not of the group, named twice, or this rank.

    Example:
        >>> last_rank = (bf.rank() - 1) % bf.size()
        >>> destinations, weights = bf.topology_util.InferDestinationFromSourceRanks(
        ...     [last_rank], construct_adjacency_matrix=True
        ... )
        >>> destinations == [(bf.rank() + 1) % bf.size()], weights[0].tolist()
        (True, [0.5, 0.5, 0.0, 0.0])
    """
    table = _gather(src_ranks, "src_ranks", group)
    named_me = _named(table, resolve(group))
    return (named_me, _uniform(table.T)) if construct_adjacency_matrix else named_me


def _gather(ranks: Iterable[Any], name: str, group: dist.ProcessGroup | None) -> Table:
    """Return an (n, n) matrix whose element [i, j] is 1 if rank i named rank j, and otherwise 0."""
    from bluefog_pg._core.group_check import named_by_all

    resolved = resolve(group)
    gathered: Table = named_by_all(resolved, _checked(ranks, name, resolved))[:, 0].numpy()
    return gathered


def _checked(ranks: Iterable[Any], name: str, group: dist.ProcessGroup) -> list[int]:
    def refuse(what: str) -> ArgumentError:
        return ArgumentError(
            f"{who(group)}: {name} must be different ranks from 0 to {group.size() - 1} without "
            f"{group.rank()} itself, got {ranks!r}: {what}"
        )

    try:
        numbers = [operator.index(rank) for rank in ranks]
    except TypeError:
        raise refuse("not a list of integers") from None
    for rank in numbers:
        if not 0 <= rank < group.size():
            raise refuse(f"{rank} is no rank")
        if rank == group.rank():
            raise refuse(f"{rank} is this rank")
        if numbers.count(rank) > 1:
            raise refuse(f"{rank} twice")
    return numbers


def _named(table: Table, group: dist.ProcessGroup) -> list[int]:
    named: list[int] = table[:, group.rank()].nonzero()[0].tolist()
    return named


def _uniform(edges: Table) -> Matrix:
    import numpy as np

    with_self = edges + np.eye(len(edges))
    weights: Matrix = with_self / with_self.sum(axis=0)
    return weights
