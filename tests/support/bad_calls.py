"""This module lists bad calls of the neighbor operations, and the class of what each must raise.

Rank 1 makes them over a `ready_group` of four ranks. Its in-neighbors are 0 and 3, and its
out-neighbors are 2 and 3. It is on machine 0, whose neighbor is machine 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

Call = Callable[[Any], Any]


def f(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def call(op: str, *args: Any, **kwargs: Any) -> Call:
    def of(group: Any) -> Any:
        import bluefog_pg

        return getattr(bluefog_pg, op)(*args, group=group, **kwargs)

    return of


def call_with_tangent(op: str, *args: Any, **kwargs: Any) -> Call:
    def of(group: Any) -> Any:
        import bluefog_pg

        with forward_ad.dual_level():
            x = forward_ad.make_dual(f(4), f(4))
            return getattr(bluefog_pg, op)(x, *args, group=group, **kwargs)

    return of


def tensors(op: str, *args: Any, **kwargs: Any) -> dict[str, tuple[str, Call]]:
    """Return calls with tensors that no operation takes."""

    def of(x: Any) -> Call:
        return call(op, x, *args, **kwargs)

    return {
        f"{op}, no tensor": ("TypeError", of(3.0)),
        f"{op}, None": ("TypeError", of(None)),
        f"{op}, an array": ("TypeError", of(f(3).numpy())),
        f"{op}, sparse": ("ValueError", of(f(3, 3).to_sparse())),
        f"{op}, sparse rows": ("ValueError", of(f(3, 3).to_sparse_csr())),
        f"{op}, a name that is none": ("TypeError", call(op, f(3), *args, **kwargs, name=5)),
        f"{op}, with a tangent": ("NotImplementedError", call_with_tangent(op, *args, **kwargs)),
        f"{op}, meta": ("ValueError", of(torch.empty(3, 3, device="meta"))),
    }


def averages(op: str, *args: Any, **kwargs: Any) -> dict[str, tuple[str, Call]]:
    """Return calls with types that have no mean."""

    def of(dtype: torch.dtype) -> tuple[str, Call]:
        return "ValueError", call(op, f(3, dtype=dtype), *args, **kwargs)

    return {
        f"{op}, int64": of(torch.int64),
        f"{op}, bool": of(torch.bool),
        f"{op}, float8": of(torch.float8_e5m2),
    }


def weights(op: str, src: str, dst: str, near: int, far: int) -> dict[str, tuple[str, Call]]:
    """Return averages with bad weights, which rank 1 calls, or machine 0 for machines."""
    own = 0 if "machine" in src else 1

    def of(self_weight: Any = 0.5, **kwargs: Any) -> tuple[str, Call]:
        given = {"self_weight": self_weight, src: {near: 0.5}, dst: [], **kwargs}
        given = {name: value for name, value in given.items() if value is not ...}
        return "ValueError", call(op, f(3), **given)

    return {
        f"{op}, self_weight alone": of(**{src: ..., dst: ...}),
        f"{op}, sources alone": of(..., **{dst: ...}),
        f"{op}, destinations alone": of(..., **{src: ...}),
        f"{op}, no self_weight": of(...),
        f"{op}, no sources": of(**{src: ...}),
        f"{op}, self_weight a string": of("0.5"),
        f"{op}, self_weight NaN": of(math.nan),
        f"{op}, self_weight a complex number": of(1j),
        f"{op}, sources a list": of(**{src: [near]}),
        f"{op}, source itself": of(**{src: {own: 0.5}}),
        f"{op}, source too high": of(**{src: {far: 0.5}}),
        f"{op}, source -1": of(**{src: {-1: 0.5}}),
        f"{op}, source a string": of(**{src: {"0": 0.5}}),
        f"{op}, source a fraction": of(**{src: {0.0: 0.5}}),
        f"{op}, weight infinite": of(**{src: {near: math.inf}}),
        f"{op}, weight None": of(**{src: {near: None}}),
        f"{op}, destination itself": of(**{dst: [own]}),
        f"{op}, destination twice": of(**{dst: [near, near]}),
        f"{op}, destination too high": of(**{dst: {far: 1.0}}),
        f"{op}, destinations a number": of(**{dst: near}),
        f"{op}, destination's weight NaN": of(**{dst: {near: math.nan}}),
    }


def ranks(op: str, x: Any) -> dict[str, tuple[str, Call]]:
    """Return calls of operations without weights whose ranks are bad. `x` fits one destination."""

    def of(src: Any, dst: Any) -> tuple[str, Call]:
        given = {"src_ranks": src, "dst_ranks": dst}
        return "ValueError", call(op, x, **{k: v for k, v in given.items() if v is not ...})

    return {
        f"{op}, src_ranks alone": of([0], ...),
        f"{op}, dst_ranks alone": of(..., [0]),
        f"{op}, source itself": of([1], [0]),
        f"{op}, source twice": of([0, 0], [0]),
        f"{op}, source too high": of([4], [0]),
        f"{op}, source -1": of([-1], [0]),
        f"{op}, source a string": of(["0"], [0]),
        f"{op}, source a fraction": of([0.0], [0]),
        f"{op}, sources a number": of(0, [0]),
        f"{op}, destination itself": of([0], [1]),
        f"{op}, destination twice": of([0], [0, 0]),
        f"{op}, destination too high": of([0], [4]),
        f"{op}, destinations a number": of([0], 0),
        f"{op}, without dimensions": ("ValueError", call(op, f())),
    }


def others() -> dict[str, tuple[str, Call]]:
    def average(x: Any) -> Call:
        return call("neighbor_allreduce", x)

    def swap(x: Any, **kwargs: Any) -> Call:
        return call("neighbor_alltoall", x, **kwargs)

    def gossip(*args: Any, **kwargs: Any) -> tuple[str, Call]:
        return "ValueError", call("pair_gossip", f(3), *args, **kwargs)

    def machines(**kwargs: Any) -> tuple[str, Call]:
        return "ValueError", call("hierarchical_neighbor_allreduce", f(3), **kwargs)

    return {
        "neighbor_allreduce, no tensors": ("ValueError", average([])),
        "neighbor_allreduce, not only tensors": ("TypeError", average([f(3), 3])),
        "neighbor_allreduce, a list of lists": ("TypeError", average([[f(3)]])),
        "neighbor_allreduce, one of int32": ("ValueError", average([f(3), f(3).int()])),
        "neighbor_allreduce, one on meta": ("ValueError", average([f(3), f(3).to("meta")])),
        "neighbor_allreduce, a stranger": (
            "ValueError",
            call("neighbor_allreduce", f(3), self_weight=0.5, src_weights={2: 0.5}),
        ),
        "neighbor_alltoall, no tensors": ("ValueError", swap([])),
        "neighbor_alltoall, three for two": ("ValueError", swap([f(1)] * 3)),
        "neighbor_alltoall, one for two": ("ValueError", swap([f(1)])),
        "neighbor_alltoall, three rows for two": ("ValueError", swap(f(3, 2))),
        "neighbor_alltoall, not only tensors": ("TypeError", swap([f(1), 1])),
        "neighbor_alltoall, of two types": ("ValueError", swap([f(1), f(1).int()])),
        "neighbor_alltoall, of two shapes": ("ValueError", swap([f(1, 2), f(1, 3)])),
        "neighbor_alltoall, one without dimensions": ("ValueError", swap([f(1), f()])),
        "neighbor_alltoall, two for one": (
            "ValueError",
            swap([f(1)] * 2, src_ranks=[0], dst_ranks=[0]),
        ),
        "neighbor_allgather, a list": ("TypeError", call("neighbor_allgather", [f(3)])),
        "pair_gossip, no tensors": ("ValueError", call("pair_gossip", [], 0)),
        "pair_gossip, not only tensors": ("TypeError", call("pair_gossip", [f(3), 3], 0)),
        "pair_gossip, target itself": gossip(1),
        "pair_gossip, target too high": gossip(4),
        "pair_gossip, target -1": gossip(-1),
        "pair_gossip, target a string": gossip("0"),
        "pair_gossip, target None": gossip(None),
        "pair_gossip, self_weight alone": gossip(0, self_weight=0.5),
        "pair_gossip, pair_weight alone": gossip(0, pair_weight=0.5),
        "pair_gossip, weight NaN": gossip(0, self_weight=0.5, pair_weight=math.nan),
        "pair_gossip, weight a string": gossip(0, self_weight="a", pair_weight=0.5),
        "hierarchical_neighbor_allreduce, a list": (
            "TypeError",
            call("hierarchical_neighbor_allreduce", [f(3)]),
        ),
        "hierarchical_neighbor_allreduce, without destinations": machines(
            self_weight=0.5, src_machine_weights={1: 0.5}
        ),
    }


BAD: dict[str, tuple[str, Call]] = {
    **tensors("neighbor_allreduce"),
    **averages("neighbor_allreduce"),
    **weights("neighbor_allreduce", "src_weights", "dst_weights", 0, 4),
    **tensors("neighbor_allgather"),
    **ranks("neighbor_allgather", f(3)),
    **tensors("neighbor_alltoall"),
    **ranks("neighbor_alltoall", [f(3)]),
    **tensors("pair_gossip", 0),
    **averages("pair_gossip", 0),
    **tensors("hierarchical_neighbor_allreduce"),
    **averages("hierarchical_neighbor_allreduce"),
    **weights(
        "hierarchical_neighbor_allreduce", "src_machine_weights", "dst_machine_weights", 1, 2
    ),
    **others(),
}
