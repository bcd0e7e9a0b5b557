"""This module has calls with roots, ranks, tags and lists that do not fit the group."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import torch

from tests.support.messages.bodies import Calls
from tests.support.messages.calls import options, world_group
from tests.support.messages.tensors import expanded, f, fs, meta, sparse


def places(b: Any) -> Calls:
    """Return calls with bad roots, ranks, tags and times, and an end of coalescing alone."""
    broadcast = functools.partial(options, "Broadcast")
    reduce = functools.partial(options, "Reduce")
    group = world_group()

    return {
        "broadcast root 4": lambda: b.broadcast(fs(1), broadcast(rootRank=4)),
        "broadcast root -1": lambda: b.broadcast(fs(1), broadcast(rootRank=-1)),
        "broadcast root tensor 1": lambda: b.broadcast(fs(1), broadcast(rootTensor=1)),
        "reduce root 9": lambda: b.reduce(fs(1), reduce(rootRank=9)),
        "reduce root tensor 2": lambda: b.reduce(fs(1), reduce(rootTensor=2)),
        "gather root 4": lambda: b.gather([], fs(1), options("Gather", rootRank=4)),
        "scatter root -2": lambda: b.scatter(fs(1), [], options("Scatter", rootRank=-2)),
        "send to 4": lambda: b.send(fs(1), 4, 0),
        "send to -1": lambda: b.send(fs(1), -1, 0),
        "send tag -1": lambda: b.send(fs(1), 0, -1),
        "recv from 4": lambda: b.recv(fs(1), 4, 0),
        "recv tag -3": lambda: b.recv(fs(1), 0, -3),
        "recv_anysource tag -1": lambda: b.recv_anysource(fs(1), -1),
        "set_timeout 0": lambda: group.set_timeout(timedelta(0)),
        "end without start of coalescing": b._end_coalescing,
    }


def lists(b: Any) -> Calls:
    group = world_group()
    double, half = torch.float64, torch.float16
    own, other = options("Gather", rootRank=1), options("Gather", rootRank=0)
    mine, theirs = options("Scatter", rootRank=1), options("Scatter", rootRank=0)

    def base(out: torch.Tensor, x: torch.Tensor, outs: Any = (), ins: Any = ()) -> Any:
        return b.alltoall_base(out, x, list(outs), list(ins))

    return {
        "gather, root without list": lambda: b.gather([], fs(1), own),
        "gather, root with two lists": lambda: b.gather([fs(4), fs(4)], fs(1), own),
        "gather, root with 3 outputs": lambda: b.gather([fs(3)], fs(1), own),
        "gather, other with outputs": lambda: b.gather([fs(4)], fs(1), other),
        "gather, dtypes": lambda: b.gather([fs(4, 2, double)], fs(1), own),
        "gather, own size": lambda: b.gather([fs(4, 3)], fs(1), own),
        "gather, meta output": lambda: b.gather([[*fs(3), meta()]], fs(1), own),
        "gather, expanded output": lambda: b.gather([[*fs(3), expanded()]], fs(1), own),
        "scatter, root without list": lambda: b.scatter(fs(1), [], mine),
        "scatter, root with 5 inputs": lambda: b.scatter(fs(1), [fs(5)], mine),
        "scatter, other with inputs": lambda: b.scatter(fs(1), [fs(4)], theirs),
        "scatter, dtypes": lambda: b.scatter(fs(1), [fs(4, 2, half)], mine),
        "scatter, own size": lambda: b.scatter(fs(1), [fs(4, 3)], mine),
        "scatter, sparse input": lambda: b.scatter(fs(1), [[*fs(3), sparse()]], mine),
        "allgather, no list": lambda: b.allgather([], fs(1)),
        "allgather, two lists": lambda: b.allgather([fs(4), fs(4)], fs(1)),
        "allgather, 0 outputs": lambda: b.allgather([[]], fs(1)),
        "allgather, 5 outputs": lambda: b.allgather([fs(5)], fs(1)),
        "allgather, 3 outputs": lambda: b.allgather([fs(3)], fs(1)),
        "allgather, dtypes": lambda: b.allgather([fs(4, 2, double)], fs(1)),
        "allgather, own size": lambda: b.allgather([fs(4, 3)], fs(1)),
        "allgather_base, size": lambda: b._allgather_base(f(7), f(2)),
        "allgather_base, dtype": lambda: b._allgather_base(f(8, dtype=torch.int32), f(2)),
        "allgather_base, expanded": lambda: b._allgather_base(f(1).expand(8), f(2)),
        "allgather_base, meta": lambda: b._allgather_base(meta(8), f(2)),
        "allgather_coalesced, 3 lists": lambda: b.allgather_coalesced([fs(1)] * 3, fs(1)),
        "allgather_coalesced, list of 2": lambda: b.allgather_coalesced([fs(2)] * 4, fs(1)),
        "allgather_coalesced, nothing": lambda: b.allgather_coalesced([[]] * 4, []),
        "allgather_into_tensor_coalesced, 2 for 1": lambda: group.allgather_into_tensor_coalesced(
            fs(2, 8), fs(1)
        ),
        "allgather_into_tensor_coalesced, size": lambda: group.allgather_into_tensor_coalesced(
            fs(1, 9), fs(1)
        ),
        "reduce_scatter, no list": lambda: b.reduce_scatter(fs(1), []),
        "reduce_scatter, 3 inputs": lambda: b.reduce_scatter(fs(1), [fs(3)]),
        "reduce_scatter, dtypes": lambda: b.reduce_scatter(fs(1), [fs(4, 2, double)]),
        "reduce_scatter, own size": lambda: b.reduce_scatter(fs(1, 3), [fs(4)]),
        "reduce_scatter_base, size": lambda: b._reduce_scatter_base(f(2), f(9)),
        "reduce_scatter_base, dtype": lambda: b._reduce_scatter_base(f(2), f(8, dtype=half)),
        "reduce_scatter_base, expanded": lambda: b._reduce_scatter_base(f(1).expand(2), f(8)),
        "reduce_scatter_tensor_coalesced, 2 for 1": lambda: group.reduce_scatter_tensor_coalesced(
            fs(2), fs(1, 8)
        ),
        "alltoall, 3 outputs": lambda: b.alltoall(fs(3), fs(4)),
        "alltoall, 5 inputs": lambda: b.alltoall(fs(4), fs(5)),
        "alltoall, dtypes of inputs": lambda: b.alltoall(fs(4), [*fs(3), f(2, dtype=double)]),
        "alltoall, dtypes of outputs": lambda: b.alltoall(fs(4, 2, double), fs(4)),
        "alltoall, own size": lambda: b.alltoall(fs(4, 3), fs(4)),
        "alltoall_base, dtype": lambda: base(f(4, dtype=half), f(4)),
        "alltoall_base, uneven": lambda: base(f(5), f(5)),
        "alltoall_base, stride": lambda: base(f(2, 4).t(), f(4, 2)),
        "alltoall_base, scalar": lambda: base(torch.tensor(1.0), torch.tensor(1.0)),
        "alltoall_base, 3 splits": lambda: base(f(6), f(6), (), (2, 2, 2)),
        "alltoall_base, negative split": lambda: base(f(4), f(4), (), (-1, 2, 2, 1)),
        "alltoall_base, large split": lambda: base(f(4), f(4), (), (5, 0, 0, 0)),
        "alltoall_base, sum of splits": lambda: base(f(4), f(4), (2, 1, 1, 1)),
        "alltoall_base, own split": lambda: base(f(4), f(4), (0, 2, 2, 0), (1, 1, 1, 1)),
    }
