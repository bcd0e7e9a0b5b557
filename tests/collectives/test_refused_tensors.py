"""Every call refuses expanded outputs, and reductions without meaning, and the group lives on."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.attempts import CALLS, NAMED, Attempt, sparse_all_reduce
from tests.support.pairwise import Case


def refused(rank: int, world: int, changes: list[tuple[str, Case]], *kinds: str) -> None:
    """These calls raise errors of these kinds; after them, the group is as good as before."""
    bad = []
    for name, change in changes:
        case = {"dtype": torch.float32, "size": "1024", "op": "SUM", "async": False}
        case |= {"layout": "contiguous", "form": CALLS[NAMED[name]].get("form", ("",))[0]}
        error = inrank.catch(NAMED[name], Attempt(rank, world, 0, case | change))
        if error is None or error.kind not in kinds:
            bad.append(f"{name}, {change}: {error or 'nothing raised'}")
    t = torch.ones(5)
    dist.all_reduce(t)
    assert t.tolist() == [world] * 5, t
    assert not bad, bad


def test_expanded_outputs_are_refused(pool: harness.Pool) -> None:
    """A rank alone refuses them in every call, and several ranks where all have outputs."""
    changes = [
        (name, {"out" if "out" in CALLS[call] else "layout": "expanded"})
        for name, call in NAMED.items()
        # The root of a broadcast only reads its tensor.
        if call is not sparse_all_reduce and name != "broadcast"
    ]
    pool.run(refused, changes, "ValueError", world=1)
    rooted = {"reduce", "gather"}
    changes = [c for c in changes if c[0] not in rooted]
    pool.run(refused, changes, "ValueError", world=3)


def broadcast_to_expanded(rank: int, world: int) -> None:
    case = {"dtype": torch.float32, "size": "1024", "async": False, "layout": "expanded"}
    if rank:  # Rank 0 is the root.
        error = inrank.catch(NAMED["broadcast"], Attempt(rank, world, 0, case))
        harness.raised(error, "ValueError", text="cannot be written; clone() it first")


def test_expanded_tensors_of_others_than_the_root_are_refused(pool: harness.Pool) -> None:
    pool.run(broadcast_to_expanded, world=3)


UNREDUCIBLE = [
    ("AVG", torch.bool), ("PREMUL_SUM", torch.uint8), ("PREMUL_SUM", torch.int64),
    ("BAND", torch.float32), ("BXOR", torch.bfloat16), ("SUM", torch.uint16),
    ("MAX", torch.float8_e5m2), ("PRODUCT", torch.complex64), ("MIN", torch.complex128),
]  # fmt: skip


def test_reductions_without_meaning_are_refused(pool: harness.Pool) -> None:
    changes = [
        (name, {"op": op, "dtype": dtype})
        for name, call in NAMED.items()
        for op, dtype in UNREDUCIBLE
        if "op" in CALLS[call]
    ]
    pool.run(refused, changes, "ValueError", "TypeError", world=2)
