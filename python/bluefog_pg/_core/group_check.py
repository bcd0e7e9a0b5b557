"""This module checks that all ranks of a group agree on the edges of a call."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg._core.errors import NAMED
from bluefog_pg._core.tags import digest_of

if TYPE_CHECKING:
    from bluefog_pg._C import Edges
    from bluefog_pg._core.group_state import GroupState

# torch 2.13 has a new name for all_gather_into_tensor, and warns about the old one.
all_gather: Any = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

_NOTHING = -1  # stands for a missing digest; digests have 7 bytes, and are never negative
_KINDS = ("self_weight", "src_machine_weights", "dst_machine_weights")


def told_by(who: str, error: Exception) -> Exception:
    """Return the error with `who` in place of the rank and operation that its text may name."""
    text = str(error)
    why = text.partition(": ")[2] if text.startswith(NAMED) else text.removeprefix("[bluefog] ")
    error.args = (f"{who}: {why}",)
    return error


@contextlib.contextmanager
def meeting(who: str) -> Iterator[None]:
    """Raise errors of the block's collectives in the name of `who`, whose call they belong to."""
    try:
        yield
    except dist.DistError as error:
        raise told_by(who, error) from None


def named_by_all(group: dist.ProcessGroup, *lists: Iterable[int]) -> torch.Tensor:
    """Return which ranks each rank of the group names in its lists of group ranks.

    Collective: it makes one all_gather of n bytes for each list, where n is the group's size.

    Returns:
        A uint8 tensor of shape (n, lists, n). Its element [i, k, j] is 1 if rank i has j in its
        k-th list, and otherwise 0.
    """
    size = group.size()
    mine = torch.zeros(len(lists), size, dtype=torch.uint8, device="cpu")
    for row, ranks in zip(mine, lists, strict=True):
        row[list(ranks)] = 1
    table = torch.empty(size, len(lists), size, dtype=torch.uint8, device="cpu")
    all_gather(table.view(-1), mine.flatten(), group=group)
    return table


def require_one(member: GroupState, op: str, what: str, given: bytes | None) -> None:
    """Raise unless all ranks of the group give the same bytes.

    Collective: it makes one all_gather of 8 bytes.

    Args:
        member, op: the call, for the texts of errors.
        what: the name of what is given, in the plural.
        given: what must be the same on all ranks; None, if this rank has failed to make it.

    Raises:
        ValueError: on every rank, if a rank gives something else than the lowest one, or nothing.
    """
    number = _NOTHING if given is None else digest_of(given)
    mine = torch.tensor([number], dtype=torch.int64, device="cpu")
    table = mine.new_empty(member.size)
    with meeting(f"{member.who} {op}"):
        all_gather(table, mine, group=member.group)
    named = dist.get_process_group_ranks(member.group)
    failed = [named[rank] for rank in (table == _NOTHING).nonzero().flatten().tolist()]
    if failed:
        raise ValueError(f"{member.who} {op}: ranks {failed} failed to give {what}")
    others = [named[rank] for rank in (table != table[0]).nonzero().flatten().tolist()]
    if others:
        raise ValueError(
            f"{member.who} {op}: the ranks give different {what}: those of ranks {others} differ "
            f"from that of rank {named[0]}"
        )


def require(member: GroupState, op: str, edges: Edges) -> None:
    """Raise unless each edge of one rank is also an edge of the other.

    Collective: it calls `named_by_all` with two lists.

    Raises:
        ValueError: on every rank, if a rank sends to one that does not receive from it, or receives
            from one that does not send to it.
    """
    table = named_by_all(
        member.group,
        [rank for rank, _ in edges.destinations],
        [rank for rank, _ in edges.sources],
    )
    sends = table[:, 0]
    receives = table[:, 1].T  # receives[i, j] says whether j receives from i.
    unheard = (sends > receives).nonzero().tolist()
    untold = (receives > sends).nonzero().tolist()
    if unheard or untold:
        named = dist.get_process_group_ranks(member.group)
        told = [
            f"rank {named[i]} sends to rank {named[j]}, which does not receive from it"
            for i, j in unheard
        ] + [
            f"rank {named[j]} receives from rank {named[i]}, which does not send to it"
            for i, j in untold
        ]
        raise ValueError(f"{member.who} {op}: the ranks do not agree on edges: {'; '.join(told)}")


def require_of_machines(member: GroupState, op: str, edges: Edges) -> None:
    """Raise unless the ranks of each machine give the same weights, and `require` is content.

    Ranks of one machine that gave unlike weights would make each part of their result another
    average. Collective: it makes one all_gather of 24 bytes for each machine, and calls `require`.

    Raises:
        ValueError: on every rank, if ranks of one machine give unlike weights; or as `require`.
    """
    machines, named = member.machines.all, dist.get_process_group_ranks(member.group)
    machine_of = {rank: machine for machine, ranks in enumerate(machines) for rank in ranks}
    # Infinity says that there is no edge, since an edge may have the weight 0.
    mine = torch.full((3, len(machines)), math.inf, dtype=torch.float64, device="cpu")
    mine[0, 0] = edges.self_weight / edges.divisor
    for rank, weight in edges.sources:
        mine[1, machine_of[rank]] = weight / edges.divisor
    for rank, weight in edges.destinations:
        mine[2, machine_of[rank]] = weight
    table = mine.new_empty(member.size, *mine.shape)
    all_gather(table.view(-1), mine.flatten(), group=member.group)
    told = [
        f"rank {named[rank]} and rank {named[first]} have different {' and '.join(kinds)}"
        for first, *others in machines
        for rank in others
        if (kinds := [_KINDS[k] for k in range(3) if not table[rank, k].equal(table[first, k])])
    ]
    if told:
        raise ValueError(
            f"{member.who} {op}: the ranks of a machine must give the same weights: "
            f"{'; '.join(told)}"
        )
    require(member, op, edges)
