"""These functions make calls of one rank: each returns what to call with a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from tests.support.messages.tensors import f, fs

Call = Callable[[Any], Any]


def options(name: str, **values: Any) -> Any:
    """Return c10d's struct of a call's options, with these values."""
    opts = getattr(c10d, f"{name}Options")()
    for key, value in values.items():
        setattr(opts, key, value)
    return opts


def world_group() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def cpu(group: dist.ProcessGroup) -> Any:
    return group._get_backend(torch.device("cpu"))


def all_reduce(x: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> Call:
    return lambda g: dist.all_reduce(x, op, group=g)


def broadcast(x: torch.Tensor, root: int = 0) -> Call:
    return lambda g: dist.broadcast(x, group=g, group_src=root)


def reduce(x: torch.Tensor, root: int, op: Any = dist.ReduceOp.SUM) -> Call:
    return lambda g: dist.reduce(x, group=g, group_dst=root, op=op)


def all_gather(n: int) -> Call:
    return lambda g: dist.all_gather_into_tensor(f(2 * n), f(n), group=g)


def all_gather_list(own: int, sizes: Sequence[int]) -> Call:
    return lambda g: dist.all_gather([f(n) for n in sizes], f(own), group=g)


def reduce_scatter(*sizes: int) -> Call:
    def call(group: Any) -> Any:
        inputs = [f(n) for n in sizes]
        return dist.reduce_scatter(f(sizes[dist.get_rank(group)]), inputs, group=group)

    return call


def gather(
    root: int, own: int, sizes: Sequence[int] = (), dtype: torch.dtype = torch.float32
) -> Call:
    """Return a gather call, in which only the root gives the sizes that it expects."""
    outputs = [[f(n, dtype=dtype) for n in sizes]] if sizes else []
    opts = options("Gather", rootRank=root)
    return lambda g: cpu(g).gather(outputs, [f(own, dtype=dtype)], opts).wait()


def scatter(root: int, own: int, sizes: Sequence[int] = ()) -> Call:
    """Return a scatter call, in which only the root gives the sizes that it sends."""
    inputs = [[f(n) for n in sizes]] if sizes else []
    opts = options("Scatter", rootRank=root)
    return lambda g: cpu(g).scatter([f(own)], inputs, opts).wait()


def exchange(outs: list[int], ins: list[int], dtype: torch.dtype = torch.float32) -> Call:
    out, x = f(sum(outs), dtype=dtype), f(sum(ins), dtype=dtype)
    return lambda g: dist.all_to_all_single(out, x, outs, ins, group=g)


def send(x: torch.Tensor, to: int, tag: int = 0) -> Call:
    return lambda g: dist.send(x, group=g, group_dst=to, tag=tag)


def recv(x: torch.Tensor, source: int | None = None, tag: int = 0) -> Call:
    return lambda g: dist.recv(x, group=g, group_src=source, tag=tag)


def coalesced() -> Call:
    return lambda g: cpu(g).allreduce_coalesced(fs(2)).wait()


def barrier(group: Any) -> Any:
    return dist.barrier(group=group)


def average(x: torch.Tensor, name: str | None = None) -> Call:
    """Return an average of a pair, in which both weights are a half."""

    def call(group: Any) -> Any:
        import bluefog_pg

        peer = 1 - dist.get_rank(group)
        weights = {"self_weight": 0.5, "src_weights": {peer: 0.5}, "dst_weights": [peer]}
        return bluefog_pg.neighbor_allreduce(x, **weights, name=name, group=group)

    return call


def monitored_barrier(seconds: float, wait_all_ranks: bool = False) -> Call:
    def call(group: Any) -> Any:
        import bluefog_pg

        return bluefog_pg.monitored_barrier(group, timedelta(seconds=seconds), wait_all_ranks)

    return call
