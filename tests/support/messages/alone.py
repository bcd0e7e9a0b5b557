"""This module has the calls that rank 1 makes and rank 3 does not, in a group of the two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from tests.support import inrank
from tests.support.messages.bodies import Labeled
from tests.support.messages.calls import (
    Call,
    all_gather,
    all_reduce,
    average,
    barrier,
    broadcast,
    coalesced,
    exchange,
    gather,
    recv,
    reduce,
    reduce_scatter,
    scatter,
    send,
)
from tests.support.messages.tensors import LARGE, f, sparse

ALONE: dict[str, Call] = {
    "all_reduce": all_reduce(f(4)),
    "all_reduce AVG large": all_reduce(f(LARGE), dist.ReduceOp.AVG),
    "all_reduce sparse": all_reduce(sparse()),
    "all_reduce coalesced": coalesced(),
    "broadcast": broadcast(f(4), 1),
    "reduce": reduce(f(4), 0),
    "all_gather": all_gather(3),
    "reduce_scatter": reduce_scatter(3, 4),
    "gather": gather(0, 3, [3, 3]),
    "scatter": scatter(1, 3),
    "all_to_all": exchange([1, 2], [1, 2]),
    "barrier": barrier,
    "neighbor_allreduce": average(f(4)),
    "neighbor_allreduce large": average(f(LARGE)),
    "send large": send(f(LARGE), 1),
    "recv": recv(f(4), 1),
    "recv tag 7": recv(f(4, dtype=torch.int64), 1, tag=7),
    "irecv from any source": lambda g: dist.irecv(f(4), group=g).wait(),
}


def called_alone(name: str, group: Any, prefix: str = "") -> Iterator[Labeled]:
    """Yield what the call raises as the first call of a group.

    After all_reduce, yield also what the next call raises.
    """
    yield prefix + name, inrank.catch(ALONE[name], group)
    if name == "all_reduce":
        yield f"{prefix}{name}, then", inrank.catch(barrier, group)
