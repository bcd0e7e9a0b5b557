"""This module makes each call of c10d on one rank and compares what comes with the oracle.

The tensors lie in guarded memory. CALLS says in what each call can vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from tests.support import oracle
from tests.support.guarded import LAYOUTS, Guarded, guarded
from tests.support.pairwise import Case

SIZES = (
    "0", "1", "3", "1023", "1024", "16K", "16K+1", "64K", "64K+1", "128K-1", "128K", "128K+1",
    "1M+1", "8M",
)  # fmt: skip
REDUCTIONS = (*oracle.ARITHMETIC, "AVG", "PREMUL_SUM", *oracle.BITWISE)
# Tests take parts of outputs with these layouts.
GUARDED_BASE = ("contiguous", "offset", "misaligned")


def count(size: str, dtype: torch.dtype) -> int:
    """Return the number of elements. A size with a unit is in bytes, plus or minus elements."""
    unit, _, more = size.replace("-", "+-").partition("+")
    if unit[-1] not in "KM":
        return int(size)
    units = int(unit[:-1]) * {"K": 1 << 10, "M": 1 << 20}[unit[-1]]
    return units // dtype.itemsize + int(more or 0)


def op_of(name: str) -> Any:
    if name == "PREMUL_SUM":
        return dist._make_nccl_premul_sum(oracle.PREMUL)
    return getattr(dist.ReduceOp, name)


class Attempt:
    """An Attempt is one case on one rank. It owns the guarded tensors and the errors found."""

    def __init__(self, rank: int, world: int, number: int, case: Case) -> None:
        self.rank, self.world, self.number, self.case = rank, world, number, case
        self.dtype, self.form = case["dtype"], case.get("form", "")
        self.layout, self.out = case["layout"], case.get("out", "contiguous")
        self.root, self.n = number % world, count(case["size"], case["dtype"])
        self.read: list[Guarded] = []
        self.written: list[Guarded] = []
        self.wrong: list[str] = []
        self.digests: list[int] = []

    # -- elements ----------------------------------------------------------------------------------
    def values(self, n: int, rank: int) -> torch.Tensor:
        """Return the n elements that `rank` gives to a reduction."""
        return self._even(oracle.values(self.dtype, n, self.number, rank))

    def bits(self, n: int, *key: int) -> torch.Tensor:
        """Return n elements with any bits, for calls that only move them.

        `key` says whose they are, or from whom to whom they go.
        """
        if self.layout == "expanded":
            key = key[:1]
        return self._even(oracle.bits(self.dtype, n, self.number, *key))

    def _even(self, x: torch.Tensor) -> torch.Tensor:
        """Repeat the first element in an expanded tensor, which holds one element many times."""
        return x[:1].repeat(x.numel()) if self.layout == "expanded" else x

    def part(self, rank: int) -> int:
        """Return the number of elements of a rank's part, where parts may differ."""
        if self.form == "uneven":
            return 0 if (rank + self.number) % 4 == 3 else self.n + 5 * rank
        return self.n

    def parcel(self, sender: int, receiver: int) -> int:
        """Return how many elements go from one rank to another, in whole rows of any width."""
        if self.form == "uneven":
            turn = (sender + 2 * receiver + self.number) % 4
            return 0 if turn == 3 else self.n + 420 * turn
        if self.form == "one each":
            return self.n if receiver == (sender + self.number) % self.world else 0
        return self.n

    # -- tensors -----------------------------------------------------------------------------------
    def shape(self, n: int) -> tuple[int, ...]:
        """Return a shape of none, one or two dimensions for n elements."""
        if self.layout == "scalar" and n == 1:
            return ()
        if self.number % 2 and not {self.layout, self.out} & {"transposed", "column"}:
            return (n,)
        width = next(d for d in (7, 5, 4, 3, 2, 1) if n % d == 0)
        return (n // width, width)

    def many(self, n: int, parts: int) -> tuple[int, ...]:
        """Return the shape of one tensor that holds several parts of n elements each."""
        one = self.shape(n)
        return (parts, *one) if self.form == "stacked" or not one else (parts * one[0], *one[1:])

    def given(self, x: torch.Tensor, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """Return a tensor with these elements that the call must only read."""
        shape = self.shape(x.numel()) if shape is None else shape
        self.read.append(guarded(shape, self.dtype, self.layout, x))
        return self.read[-1].tensor

    def room(self, n: int, shape: tuple[int, ...] | None = None) -> Guarded:
        """Return memory for a tensor that the call must fill."""
        shape = self.shape(n) if shape is None else shape
        self.written.append(guarded(shape, self.dtype, self.out))
        return self.written[-1]

    def both(self, x: torch.Tensor, layout: str = "") -> Guarded:
        """Return memory with these elements for a tensor that the call both reads and fills."""
        memory = guarded(self.shape(x.numel()), self.dtype, layout or self.layout, x)
        self.written.append(memory)
        return memory

    # -- verdict -----------------------------------------------------------------------------------
    def finish(self, work: Any) -> None:
        asynchronous = self.case["async"]
        if (work is not None) != asynchronous:
            self.wrong.append(f"returned {work}")
        if asynchronous:
            work.wait()

    def holds(self, memory: Guarded, want: torch.Tensor, what: str = "") -> None:
        bad = oracle.moved(memory.values(), want)
        if bad:
            self.wrong.append(f"{what} {bad}".strip())

    def reduced(self, memory: Guarded, xs: Sequence[torch.Tensor]) -> None:
        """Check a reduction of `xs` period by period.

        The elements of `xs` repeat after each PERIOD, and so do those of the right result.
        """
        want, error = oracle.reduce([x[: oracle.PERIOD] for x in xs], self.case["op"])
        for number, got in enumerate(memory.values().split(oracle.PERIOD)):
            slack = None if error is None else error[: len(got)]
            if bad := oracle.differs(got, want[: len(got)], slack):
                self.wrong.append(f"period {number}: {bad}")
                break

    def agreed(self, memory: Guarded, xs: Callable[[], Sequence[torch.Tensor]]) -> None:
        """Check a reduction that all ranks get.

        The root checks the numbers. The test compares the digests, which must be the same on all
        ranks.
        """
        self.digests.append(oracle.digest(memory.values()))
        if self.rank == self.root:
            self.reduced(memory, xs())

    def verdict(self) -> list[str]:
        if any(memory.changed() for memory in self.read):
            self.wrong.append("changed what it had only to read")
        if any(memory.spilled() for memory in self.written):
            self.wrong.append("wrote outside the tensor")
        return self.wrong


# -- the calls -------------------------------------------------------------------------------------
def all_reduce(a: Attempt) -> None:
    t = a.both(a.values(a.n, a.rank))
    a.finish(dist.all_reduce(t.tensor, op_of(a.case["op"]), async_op=a.case["async"]))
    a.agreed(t, lambda: [a.values(a.n, r) for r in range(a.world)])


def all_reduce_coalesced(a: Attempt) -> None:
    """Reduce several tensors by one call, or by one call each within the coalescing manager."""
    sizes, op = [a.n, 3, a.n // 2 + 1, 0, a.n], op_of(a.case["op"])
    ts = [a.both(a.values(n, 10 * i + a.rank)) for i, n in enumerate(sizes)]
    tensors = [t.tensor for t in ts]
    if a.form == "manager":
        with coalesced(a):
            for t in tensors:
                dist.all_reduce(t, op)
    else:
        a.finish(dist.all_reduce_coalesced(tensors, op, async_op=a.case["async"]))
    for i, t in enumerate(ts):
        a.agreed(t, lambda i=i: [a.values(sizes[i], 10 * i + r) for r in range(a.world)])


@contextmanager
def coalesced(a: Attempt) -> Iterator[None]:
    with dist.distributed_c10d._coalescing_manager(async_ops=a.case["async"]) as manager:
        yield
    if a.case["async"]:
        manager.wait()


def sparse_all_reduce(a: Attempt) -> None:
    """Reduce sparse tensors whose indices and counts differ by rank; some indices occur twice."""
    rows = a.n // 2 + 5

    def of(rank: int) -> torch.Tensor:
        n = a.n // (1 + (rank + a.number) % 3)
        x = oracle.values(a.dtype, n * 3, a.number, rank).view(n, 3)
        i = (torch.arange(n) * (rank + 1) + a.number) % rows
        t = torch.sparse_coo_tensor(i[None], x, (rows, 3))
        return t.coalesce() if a.form == "coalesced" else t

    t = of(a.rank)
    a.finish(dist.all_reduce(t, async_op=a.case["async"]))
    got = t.to_dense()
    a.digests.append(oracle.digest(got))
    if a.rank == a.root:
        terms, size = dense_terms([of(r) for r in range(a.world)])
        want, error = oracle.reduce(terms, "SUM")
        bad = oracle.differs(got, want, None if error is None else error * size)
        a.wrong += [bad] * bool(bad)


def dense_terms(ts: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], int]:
    """Return the dense tensors whose sum is wanted, and by what the allowed error grows.

    The values that share an index are added up in float64, or exactly where they are integers.
    """
    terms = []
    for t in ts:
        whole = torch.zeros(t.shape, dtype=torch.float64 if t.is_floating_point() else t.dtype)
        whole.index_add_(0, t._indices()[0], t._values().to(whole.dtype))
        terms.append(whole.to(t.dtype))
    return terms, 4


def broadcast(a: Attempt) -> None:
    t = a.both(a.bits(a.n, a.rank))
    a.finish(dist.broadcast(t.tensor, a.root, async_op=a.case["async"]))
    a.holds(t, a.bits(a.n, a.root))


def reduce(a: Attempt) -> None:
    """Reduce to the root, whose tensor alone is written."""
    t = a.both(a.values(a.n, a.rank))
    op, asynchronous = op_of(a.case["op"]), a.case["async"]
    a.finish(dist.reduce(t.tensor, a.root, op, async_op=asynchronous))
    if a.rank == a.root:
        a.reduced(t, [a.values(a.n, r) for r in range(a.world)])
    else:
        a.holds(t, a.values(a.n, a.rank), "another rank than the root")


def all_gather(a: Attempt) -> None:
    parts = [a.part(r) for r in range(a.world)]
    outs = [a.room(n) for n in parts]
    mine = a.bits(parts[a.rank], a.rank)
    if a.form == "in place":
        outs[a.rank] = a.both(mine, a.out)
        x = outs[a.rank].tensor
    else:
        x = a.given(mine)
    a.finish(dist.all_gather([o.tensor for o in outs], x, async_op=a.case["async"]))
    for r, out in enumerate(outs):
        a.holds(out, a.bits(parts[r], r), f"part {r}")


def all_gather_rows(a: Attempt) -> None:
    """Gather into the rows of one tensor."""
    out = a.room(a.n * a.world, (a.world, *a.shape(a.n)))
    x = a.given(a.bits(a.n, a.rank))
    a.finish(dist.all_gather([*out.tensor], x, async_op=a.case["async"]))
    a.holds(out, torch.cat([a.bits(a.n, r) for r in range(a.world)]))


def all_gather_into_tensor(a: Attempt) -> None:
    out = a.room(a.n * a.world, a.many(a.n, a.world))
    mine = a.bits(a.n, a.rank)
    if a.form == "in place":
        own = out.part(a.rank * a.n, a.shape(a.n))
        own.fill(mine)
        x = own.tensor
    else:
        x = a.given(mine)
    a.finish(dist.all_gather_into_tensor(out.tensor, x, async_op=a.case["async"]))
    a.holds(out, torch.cat([a.bits(a.n, r) for r in range(a.world)]))


def all_gather_coalesced(a: Attempt) -> None:
    sizes = [a.n, 3, a.n // 2 + 1]
    outs = [[a.room(n) for n in sizes] for _ in range(a.world)]
    xs = [a.given(a.bits(n, a.rank, i)) for i, n in enumerate(sizes)]
    lists = [[o.tensor for o in row] for row in outs]
    a.finish(dist.all_gather_coalesced(lists, xs, async_op=a.case["async"]))
    for r, row in enumerate(outs):
        for i, out in enumerate(row):
            a.holds(out, a.bits(sizes[i], r, i), f"tensor {i} of rank {r}")


def all_gather_into_tensor_coalesced(a: Attempt) -> None:
    sizes = [a.n, 3, a.n // 2 + 1]
    outs = [a.room(n * a.world, a.many(n, a.world)) for n in sizes]
    xs = [a.given(a.bits(n, a.rank, i)) for i, n in enumerate(sizes)]
    with coalesced(a):
        for out, x in zip(outs, xs, strict=True):
            dist.all_gather_into_tensor(out.tensor, x)
    for i, (out, n) in enumerate(zip(outs, sizes, strict=True)):
        a.holds(out, torch.cat([a.bits(n, r, i) for r in range(a.world)]), f"tensor {i}")


def gather(a: Attempt) -> None:
    parts = [a.part(r) for r in range(a.world)]
    mine = a.bits(parts[a.rank], a.rank)
    if a.rank != a.root:
        a.finish(dist.gather(a.given(mine), dst=a.root, async_op=a.case["async"]))
        return
    outs = [a.room(n) for n in parts]
    if a.form == "in place":
        outs[a.rank] = a.both(mine, a.out)
    x = outs[a.rank].tensor if a.form == "in place" else a.given(mine)
    a.finish(dist.gather(x, [o.tensor for o in outs], a.root, async_op=a.case["async"]))
    for r, out in enumerate(outs):
        a.holds(out, a.bits(parts[r], r), f"part {r}")


def scatter(a: Attempt) -> None:
    parts = [a.part(r) for r in range(a.world)]
    mine = a.bits(parts[a.rank], a.rank)
    xs = None
    if a.rank == a.root:
        xs = [a.given(a.bits(n, r)) for r, n in enumerate(parts)]
    if xs and a.form == "in place":
        out = a.both(mine, a.out)
        xs[a.rank] = out.tensor
    else:
        out = a.room(parts[a.rank])
    a.finish(dist.scatter(out.tensor, xs, a.root, async_op=a.case["async"]))
    a.holds(out, mine)


def reduce_scatter(a: Attempt) -> None:
    parts = [a.part(r) for r in range(a.world)]
    starts = [sum(parts[:r]) for r in range(a.world)]

    def of(rank: int, part: int) -> torch.Tensor:
        return a.values(sum(parts), rank)[starts[part] :][: parts[part]]

    xs = [a.given(of(a.rank, r)) for r in range(a.world)]
    if a.form == "in place":
        out = a.both(of(a.rank, a.rank), a.out)
        xs[a.rank] = out.tensor
    else:
        out = a.room(parts[a.rank])
    a.finish(dist.reduce_scatter(out.tensor, xs, op_of(a.case["op"]), async_op=a.case["async"]))
    a.reduced(out, [of(r, a.rank) for r in range(a.world)])


def mine_of(a: Attempt, n: int, key: int = 0) -> list[torch.Tensor]:
    """Return what each rank gives to this rank's part of n elements."""
    return [a.values(n * a.world, key + r)[a.rank * n :][:n] for r in range(a.world)]


def reduce_scatter_tensor(a: Attempt) -> None:
    whole = a.values(a.n * a.world, a.rank)
    op, asynchronous = op_of(a.case["op"]), a.case["async"]
    if a.form == "in place":
        memory = guarded(a.many(a.n, a.world), a.dtype, a.out, whole)
        out, x = memory.part(a.rank * a.n, a.shape(a.n)), memory.tensor
        a.written.append(out)
    else:
        out, x = a.room(a.n), a.given(whole, a.many(a.n, a.world))
    a.finish(dist.reduce_scatter_tensor(out.tensor, x, op, async_op=asynchronous))
    a.reduced(out, mine_of(a, a.n))


def reduce_scatter_tensor_coalesced(a: Attempt) -> None:
    sizes = [a.n, 3, a.n // 2 + 1]
    outs = [a.room(n) for n in sizes]
    xs = [
        a.given(a.values(n * a.world, 10 * i + a.rank), a.many(n, a.world))
        for i, n in enumerate(sizes)
    ]
    with coalesced(a):
        for out, x in zip(outs, xs, strict=True):
            dist.reduce_scatter_tensor(out.tensor, x, op_of(a.case["op"]))
    for i, (out, n) in enumerate(zip(outs, sizes, strict=True)):
        a.reduced(out, mine_of(a, n, 10 * i))


def all_to_all(a: Attempt) -> None:
    peers = range(a.world)
    outs = [a.room(a.parcel(r, a.rank)) for r in peers]
    xs = [a.given(a.bits(a.parcel(a.rank, r), a.rank, r)) for r in peers]
    a.finish(dist.all_to_all([o.tensor for o in outs], xs, async_op=a.case["async"]))
    for r, out in enumerate(outs):
        a.holds(out, a.bits(a.parcel(r, a.rank), r, a.rank), f"from {r}")


def all_to_all_single(a: Attempt) -> None:
    """Exchange rows of one tensor; the splits count rows, and are left out where all are alike."""
    peers = range(a.world)
    row = a.shape(a.n)[1:]
    width = row[0] if row else 1
    sent = [a.parcel(a.rank, r) // width for r in peers]
    due = [a.parcel(r, a.rank) // width for r in peers]
    whole = torch.cat([a.bits(sent[r] * width, a.rank, r) for r in peers])
    out = a.room(sum(due) * width, (sum(due), *row))
    x = a.given(whole, (sum(sent), *row))
    splits = () if a.form == "no splits" else (due, sent)
    a.finish(dist.all_to_all_single(out.tensor, x, *splits, async_op=a.case["async"]))
    a.holds(out, torch.cat([a.bits(due[r] * width, r, a.rank) for r in peers]))


def send_recv(a: Attempt) -> None:
    """Send to the right around the ring; a rank that is alone sends to itself."""
    right, left = (a.rank + 1) % a.world, (a.rank - 1) % a.world
    x, out = a.given(a.bits(a.n, a.rank)), a.room(a.n)
    source = None if a.form == "any source" else left
    if a.case["async"] or a.world == 1:
        pending = dist.irecv(out.tensor, source, tag=a.number)
        dist.isend(x, right, tag=a.number).wait()
        pending.wait()
        if a.form == "any source" and pending._source_rank() != left:
            a.wrong.append(f"from {pending._source_rank()}")
    else:
        for step in ("send", "recv") if a.rank % 2 == 0 else ("recv", "send"):
            if step == "send":
                dist.send(x, right, tag=a.number)
            elif dist.recv(out.tensor, source, tag=a.number) != left:
                a.wrong.append("from another rank")
    a.holds(out, a.bits(a.n, left))


def batch_isend_irecv(a: Attempt) -> None:
    """Exchange with both sides at once.

    The form says whether receives come first in the batch. An async case waits in reverse order.
    """
    right, left = (a.rank + 1) % a.world, (a.rank - 1) % a.world
    outs = [a.room(a.n), a.room(a.n)]
    xs = [a.given(a.bits(a.n, a.rank, side)) for side in (0, 1)]
    calls = [
        (dist.irecv, outs[0].tensor, left), (dist.irecv, outs[1].tensor, right),
        (dist.isend, xs[0], right), (dist.isend, xs[1], left),
    ]  # fmt: skip
    order = (0, 1, 2, 3) if a.form == "receive first" else (2, 3, 0, 1)
    ops = [
        dist.P2POp(call, t, peer, tag=a.number) for call, t, peer in map(calls.__getitem__, order)
    ]
    works = dist.batch_isend_irecv(ops)
    for work in reversed(works) if a.case["async"] else works:
        work.wait()
    a.holds(outs[0], a.bits(a.n, left, 0), "from the left")
    a.holds(outs[1], a.bits(a.n, right, 1), "from the right")


# -- the cases -------------------------------------------------------------------------------------
REDUCING: dict[str, Any] = {"dtype": oracle.REDUCIBLE, "op": REDUCTIONS}
MOVING: dict[str, Any] = {"dtype": oracle.MOVABLE}
IN_PLACE = {"layout": (*LAYOUTS, "scalar")}
INPUT = {"layout": (*LAYOUTS, "scalar", "expanded")}
BASE = INPUT | {"out": GUARDED_BASE}
TO_LISTS = INPUT | {"out": LAYOUTS}
SPARSE = (torch.float32, torch.float64, torch.int64, torch.int32)

CALLS: dict[Callable[[Attempt], None], dict[str, Any]] = {
    all_reduce: REDUCING | IN_PLACE,
    all_reduce_coalesced: REDUCING | IN_PLACE | {"form": ("call", "manager")},
    sparse_all_reduce: {
        "dtype": SPARSE, "size": SIZES[:7], "layout": ("contiguous",),
        "form": ("coalesced", "as it is"),
    },
    broadcast: MOVING | IN_PLACE,
    reduce: REDUCING | IN_PLACE,
    all_gather: MOVING | TO_LISTS | {"form": ("even", "uneven", "in place")},
    all_gather_rows: MOVING | BASE,
    all_gather_into_tensor: MOVING | BASE | {"form": ("concatenated", "stacked", "in place")},
    all_gather_coalesced: MOVING | TO_LISTS,
    all_gather_into_tensor_coalesced: MOVING | BASE | {"form": ("concatenated", "stacked")},
    gather: MOVING | TO_LISTS | {"form": ("even", "uneven", "in place")},
    scatter: MOVING | TO_LISTS | {"form": ("even", "uneven", "in place")},
    reduce_scatter: REDUCING | TO_LISTS | {"form": ("even", "uneven", "in place")},
    reduce_scatter_tensor: REDUCING | BASE | {"form": ("concatenated", "stacked", "in place")},
    reduce_scatter_tensor_coalesced: REDUCING | BASE | {"form": ("concatenated", "stacked")},
    all_to_all: MOVING | TO_LISTS | {"form": ("even", "uneven", "one each")},
    all_to_all_single: MOVING | BASE | {"form": ("no splits", "even", "uneven", "one each")},
    send_recv: MOVING | TO_LISTS | {"form": ("named source", "any source")},
    batch_isend_irecv: MOVING | TO_LISTS | {"form": ("receive first", "send first")},
}  # fmt: skip
NAMED = {call.__name__: call for call in CALLS}
