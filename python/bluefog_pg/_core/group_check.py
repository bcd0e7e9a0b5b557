"""What all ranks of a group say of the edges of a call."""

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

# torch 2.13 names it anew, and warns about the old name.
all_gather: Any = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

_NOTHING = -1  # among digests of 7 bytes
_KINDS = ("self_weight", "src_machine_weights", "dst_machine_weights")


def told_by(who: str, error: Exception) -> Exception:
    """That error, `who` in the place of whom its text names, if it does."""
    text = str(error)
    why = text.partition(": ")[2] if text.startswith(NAMED) else text.removeprefix("[bluefog] ")
    error.args = (f"{who}: {why}",)
    return error


@contextlib.contextmanager
def meeting(who: str) -> Iterator[None]:
    """What fails in it is told of `who`, of whose calls the collectives in it are a part."""
    try:
        yield
    except dist.DistError as error:
        raise told_by(who, error) from None


def named_by_all(group: dist.ProcessGroup, *lists: Iterable[int]) -> torch.Tensor:
    """Collective: one all_gather of n bytes for each list of group ranks.

    Returns:
        (n, lists, n), uint8: [i, k, j] is 1 where rank i has j in its k-th list.
    """
    size = group.size()
    mine = torch.zeros(len(lists), size, dtype=torch.uint8, device="cpu")
    for row, ranks in zip(mine, lists, strict=True):
        row[list(ranks)] = 1
    table = torch.empty(size, len(lists), size, dtype=torch.uint8, device="cpu")
    all_gather(table.view(-1), mine.flatten(), group=group)
    return table


def require_one(member: GroupState, op: str, what: str, given: bytes | None) -> None:
    """Collective: one all_gather of 8 bytes.

    Args:
        member, op: whose call.
        what: the name of what is given, in the plural.
        given: what all ranks must give alike; None, where this rank has failed to make it.

    Raises:
        ValueError: on every rank, where ranks give something else than the lowest one, or nothing.
    """
    number = _NOTHING if given is None else digest_of(given)
    mine = torch.tensor([number], dtype=torch.int64, device="cpu")
    table = mine.new_empty(member.size)
    with meeting(f"{member.who} {op}"):
        all_gather(table, mine, group=member.group)
    named = dist.get_process_group_ranks(member.group)
    failed = [named[rank] for rank in (table == _NOTHING).nonzero().flatten().tolist()]
    if failed:
        raise ValueError(f"{member.who} {op}: ranks {failed} have failed to give {what}")
    others = [named[rank] for rank in (table != table[0]).nonzero().flatten().tolist()]
    if others:
        raise ValueError(
            f"{member.who} {op}: the ranks give unlike {what}: those of ranks {others} differ from "
            f"that of rank {named[0]}"
        )


def require(member: GroupState, op: str, edges: Edges) -> None:
    """Collective, as `named_by_all`.

    Raises:
        ValueError: on every rank, where one of them sends along an edge on which the other does not
            receive, or the other way round.
    """
    table = named_by_all(
        member.group,
        [rank for rank, _ in edges.destinations],
        [rank for rank, _ in edges.sources],
    )
    sends = table[:, 0]
    receives = table[:, 1].T  # [i, j]: j receives from i
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
    """Collective: one all_gather of 8 bytes a machine and direction, and `require`.

    Raises:
        ValueError: on every rank, where ranks of one machine have other weights, which would make
            each part of their result another average; or as `require`.
    """
    machines, named = member.machines.all, dist.get_process_group_ranks(member.group)
    machine_of = {rank: machine for machine, ranks in enumerate(machines) for rank in ranks}
    # Infinite where there is no edge: a weight of 0 is one.
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
