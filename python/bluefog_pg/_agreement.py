"""Whether all ranks of a group agree on the edges of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from bluefog_pg._C import Edges
    from bluefog_pg._member import Member


def require(member: Member, op: str, edges: Edges) -> None:
    """Collective: one all_gather of 2 n bytes.

    Raises:
        ValueError: on every rank, where one of them sends along an edge on which the other does not
            receive, or the other way round.
    """
    mine = torch.zeros(2, member.size, dtype=torch.uint8)
    mine[0, [rank for rank, _ in edges.destinations]] = 1
    mine[1, [rank for rank, _ in edges.sources]] = 1
    table = torch.empty(member.size, 2, member.size, dtype=torch.uint8)
    dist.all_gather_into_tensor(table, mine.flatten(), group=member.group)
    sends = table[:, 0]
    receives = table[:, 1].T  # [i, j]: j receives from i
    unheard = (sends > receives).nonzero().tolist()
    untold = (receives > sends).nonzero().tolist()
    if unheard or untold:
        told = [f"rank {i} sends to rank {j}, which does not receive from it" for i, j in unheard]
        told += [f"rank {j} receives from rank {i}, which does not send to it" for i, j in untold]
        raise ValueError(f"{member.who} {op}: the ranks do not agree on edges: {'; '.join(told)}")
