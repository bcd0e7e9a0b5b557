"""This module counts how often an averaging touches the bytes of a tensor."""

from __future__ import annotations

from typing import Any

import launch
import peers
import torch.distributed as dist

from bluefog_pg.tools.bench.cases import Case

SIZE = 1 << 20
CYCLES = 6  # cycles through the turns of an operation


def count(me: launch.Rank, op: str, gloo: dist.ProcessGroup) -> dict[str, Any]:
    """Return the counts of a call, in units of the bytes of one tensor.

    Reads are those of what peers have sent, without those of the own tensor.
    """
    import bluefog_pg

    case = Case(op, me.rank, me.n, SIZE)
    call = peers.BluefogPeer("bluefog", None).bind(case)
    assert call
    turns = case.edges()
    dist.barrier(group=gloo)
    before: dict[str, int] = bluefog_pg.stats()
    for _ in range(CYCLES * len(turns)):
        call()
    dist.barrier(group=gloo)
    after: dict[str, int] = bluefog_pg.stats()
    sources, destinations = turns[0]
    unit = CYCLES * len(turns) * case.size

    def per(counter: str, edges: int) -> float:
        return (after[counter] - before[counter]) / unit / edges

    return {
        "ranks": me.n,
        "op": op,
        "size": case.size,
        "in_neighbors": len(sources),
        "out_neighbors": len(destinations),
        "copies_per_out_neighbor": per("bytes_sent", len(destinations)),
        "reads_per_in_neighbor": per("bytes_read", len(sources)),
        "writes_of_result": per("bytes_written", 1),
    }
