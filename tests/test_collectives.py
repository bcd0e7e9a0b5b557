"""Every collective against the oracle: kinds, operators, sizes at the borders, layouts, worlds."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest
import torch
import torch.distributed as dist

import harness
import oracle

SIZES = ("0", "1", "3", "1023", "64K-1", "64K", "64K+1", "128K+1", "1M+1", "5M")
LAYOUTS = ("contiguous", "offset", "transposed", "strided", "column")
WORLDS = (1, 2, 3, 4)
OPS = (*oracle.ARITHMETIC, "AVG", "PREMUL_SUM", *oracle.BITWISE)
Case = dict[str, Any]


def count(size: str, dtype: torch.dtype) -> int:
    """Sizes with a unit are bytes, plus or minus elements."""
    unit, _, more = size.replace("-", "+-").partition("+")
    if unit[-1] not in "KM":
        return int(size)
    return int(unit[:-1]) * {"K": 1 << 10, "M": 1 << 20}[unit[-1]] // dtype.itemsize + int(
        more or 0
    )


def op_of(name: str) -> Any:
    if name == "PREMUL_SUM":
        return dist._make_nccl_premul_sum(oracle.PREMUL)
    return getattr(dist.ReduceOp, name)


GUARD = 77


def laid(x: torch.Tensor, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A view with the values of x in this layout, and the guarded memory it lies in."""
    n = x.numel()
    a = next(d for d in (7, 5, 4, 3, 2, 1) if n % d == 0)
    base = torch.full((2 * n + 16,), GUARD % 2 if x.dtype == torch.bool else GUARD).to(x.dtype)
    view = {
        "contiguous": lambda: base[:n],
        "offset": lambda: base[3 : 3 + n],
        "transposed": lambda: base[:n].view(n // a, a).t(),
        "strided": lambda: base[: 2 * n : 2],
        "column": lambda: base[: 2 * n].view(a, 2 * n // a)[:, : n // a],
    }[layout]()
    view.copy_(x.view(view.shape))
    return view, base


def spilled(view: torch.Tensor, base: torch.Tensor) -> str:
    outside = torch.ones(base.shape, dtype=torch.bool)
    outside.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(False)
    guard = torch.tensor(GUARD % 2 if base.dtype == torch.bool else GUARD).to(base.dtype)
    return "" if (base[outside] == guard).all() else "wrote outside the tensor"


def inputs(case: Case, seed: int, world: int, scale: int = 1) -> list[torch.Tensor]:
    n = count(case["size"], case["dtype"]) * scale
    return [oracle.values(case["dtype"], n, seed, r) for r in range(world)]


def finish(work: dist.Work | None, asynchronous: bool) -> None:
    assert (work is not None) == asynchronous
    if work is not None:
        work.wait()


def all_reduce(rank: int, world: int, seed: int, case: Case) -> tuple[str, int]:
    xs = inputs(case, seed, world)
    t, base = laid(xs[rank], case["layout"])
    finish(dist.all_reduce(t, op_of(case["op"]), async_op=case["async"]), case["async"])
    bad = oracle.differs(t, *oracle.reduce(xs, case["op"])) or spilled(t, base)
    return bad, oracle.digest(t)


def broadcast(rank: int, world: int, seed: int, case: Case) -> tuple[str, int]:
    xs, root = inputs(case, seed, world), seed % world
    t, base = laid(xs[rank], case["layout"])
    finish(dist.broadcast(t, root, async_op=case["async"]), case["async"])
    bad = oracle.differs(t, oracle.exact(xs[root]), None) or spilled(t, base)
    return bad, oracle.digest(t)


def all_gather(rank: int, world: int, seed: int, case: Case) -> tuple[str, int]:
    """Into a list (rows of one bigger tensor), concatenated, stacked, or in place."""
    xs = inputs(case, seed, world)
    n, form = xs[0].numel(), case["form"]
    x, _ = laid(xs[rank], case["layout"])
    out, base = laid(torch.zeros(world * n, dtype=x.dtype), "offset")
    if form == "list":
        work = dist.all_gather([*out.view(world, n)], x.reshape(n), async_op=case["async"])
    elif form == "in place":
        own = out[rank * n : (rank + 1) * n]
        own.copy_(xs[rank])
        work = dist.all_gather_into_tensor(out, own, async_op=case["async"])
    else:
        shape = (world, n) if form == "stacked" else (world * n,)
        work = dist.all_gather_into_tensor(
            out.view(shape), x.contiguous().view(n), async_op=case["async"]
        )
    finish(work, case["async"])
    bad = oracle.differs(out, oracle.exact(torch.cat(xs)), None) or spilled(out, base)
    return bad, oracle.digest(out)


def reduce_scatter(rank: int, world: int, seed: int, case: Case) -> tuple[str, int]:
    """From a list with even or uneven parts, or from one tensor."""
    n, form, op = count(case["size"], case["dtype"]), case["form"], case["op"]
    parts = [n + 5 * r if form == "uneven" else n for r in range(world)]
    xs = [oracle.values(case["dtype"], sum(parts), seed, r) for r in range(world)]
    out, base = laid(torch.zeros(parts[rank], dtype=case["dtype"]), "offset")
    if form == "tensor":
        work = dist.reduce_scatter_tensor(out, xs[rank], op_of(op), async_op=case["async"])
    else:
        work = dist.reduce_scatter(
            out, [*xs[rank].clone().split(parts)], op_of(op), async_op=case["async"]
        )
    finish(work, case["async"])
    mine = [x.split(parts)[rank] for x in xs]
    return oracle.differs(out, *oracle.reduce(mine, op)) or spilled(out, base), 0


def run_cases(rank: int, world: int, name: str, cases: list[Case]) -> tuple[list[str], list[int]]:
    bad, digests = [], []
    for seed, case in enumerate(cases):
        try:
            wrong, bits = globals()[name](rank, world, seed, case)
        except Exception as error:
            error.add_note(f"case {seed}: {case}")
            raise
        digests.append(bits)
        if wrong:
            bad.append(f"rank {rank}, case {seed} {case}: {wrong}")
    return bad, digests


def possible(case: Case) -> bool:
    if harness.BACKEND == "gloo":  # its gaps, so that these tests themselves can be tried on it
        gaps = {"PREMUL_SUM", "strided", "column", "uneven", "stacked", *oracle.HALVES, torch.int16}
        if gaps & set(case.values()):
            return False
    # The oracle of millions of narrow integers costs more than it tells.
    small = case["size"] != "5M" or case["dtype"] in (torch.float32, torch.bfloat16, torch.int64)
    return small and oracle.allowed(case.get("op", "SUM"), case["dtype"])


@cache
def cases_of(name: str) -> list[Case]:
    factors: dict[str, Any] = {"dtype": oracle.DTYPES, "size": SIZES, "async": (False, True)}
    if name in ("all_reduce", "reduce_scatter"):
        factors["op"] = OPS
    if name == "all_gather":
        factors["form"] = ("list", "concatenated", "stacked", "in place")
    if name == "reduce_scatter":
        factors["form"] = ("even", "uneven", "tensor")
    else:
        factors["layout"] = LAYOUTS
    return oracle.pairwise(possible, **factors)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather", "reduce_scatter"])
def test_against_the_oracle(pool: harness.Pool, name: str, world: int) -> None:
    cases = cases_of(name)
    if world in (1, 3) and name != "all_reduce":
        cases = cases[::2]
    told = pool.run(run_cases, name, cases, world=world, timeout=90)
    bad = [line for lines, _ in told for line in lines]
    assert not bad, f"{len(bad)} wrong:\n" + "\n".join(bad[:20])
    digests = [d for _, d in told]
    if name != "reduce_scatter":
        split = [c for c, *bits in zip(cases, *digests, strict=True) if len(set(bits)) > 1]
        assert not split, f"ranks hold different bits: {split[:5]}"


def zero_dim(rank: int, world: int) -> list[Any]:
    t = torch.tensor(float(rank + 1))
    dist.all_reduce(t)
    b = torch.tensor(rank)
    dist.broadcast(b, world - 1)
    parts = [torch.tensor(0.0) for _ in range(world)]
    dist.all_gather(parts, torch.tensor(float(rank)))
    return [t.item(), t.dim(), b.item(), [p.item() for p in parts]]


def test_zero_dimensional(pool: harness.Pool) -> None:
    assert pool.run(zero_dim) == [[10.0, 0, 3, [0.0, 1.0, 2.0, 3.0]]] * 4


def uneven_gather(rank: int, world: int) -> list[list[float]]:
    parts = [torch.zeros(r * 1000 + 1) for r in range(world)]
    dist.all_gather(parts, torch.full((rank * 1000 + 1,), float(rank)))
    return [sorted(set(p.tolist())) for p in parts]


@harness.only_bluefog
def test_all_gather_uneven(pool: harness.Pool) -> None:
    assert pool.run(uneven_gather) == [[[0.0], [1.0], [2.0], [3.0]]] * 4


def specials(rank: int, world: int) -> dict[str, list[int]]:
    """NaN and infinities must end up the same everywhere, in every kind of float."""
    bits: dict[str, list[int]] = {}
    for dtype in oracle.FLOATS:
        for op in ("SUM", "MIN", "MAX", "PRODUCT", "AVG"):
            t = torch.tensor([1.0, 2.0, 3.0, -0.0], dtype=dtype).repeat(257)
            if rank == world - 1:
                t[0], t[1], t[2] = float("nan"), float("inf"), float("-inf")
            dist.all_reduce(t, getattr(dist.ReduceOp, op))
            fine = t[1].isinf() if op != "MIN" else t[2].isinf()
            if op in ("SUM", "AVG", "PRODUCT"):
                fine = fine & t[0].isnan()
            bits[f"{dtype} {op}"] = [oracle.digest(t), int(fine)]
    return bits


def test_nan_and_infinity(pool: harness.Pool) -> None:
    first, *others = pool.run(specials)
    assert all(o == first for o in others)
    assert [k for k, (_, fine) in first.items() if not fine] == []


def premul_tensor(rank: int, world: int) -> list[float]:
    t = torch.full((5,), float(rank + 1))
    dist.all_reduce(t, dist._make_nccl_premul_sum(torch.tensor([0.5])))
    return sorted(set(t.tolist()))


@harness.only_bluefog
def test_premul_sum_by_a_tensor(pool: harness.Pool) -> None:
    assert pool.run(premul_tensor) == [[5.0]] * 4


def many_small(rank: int, world: int, rounds: int) -> str:
    """Rings wrap, sequence numbers grow: sizes and operations change with each round."""
    for i in range(rounds):
        n = (i * 37) % 3000
        t = torch.full((n,), float(rank + i))
        dist.all_reduce(t)
        u = torch.full((n // 7,), i if rank == i % world else -1)
        dist.broadcast(u, i % world)
        want = sum(r + i for r in range(world))
        if not (t == want).all() or not (u == i).all():
            return f"round {i}: {t[:3]}, not {want}; {u[:3]}"
    return ""


def test_many_small_ones(pool: harness.Pool) -> None:
    assert pool.run(many_small, 600) == [""] * 4


def determined(rank: int, world: int) -> tuple[list[int], list[int]]:
    """The same call gives the same bits however late the ranks come."""
    seen = []
    for late in (*range(world), -1):
        t = oracle.values(torch.float32, 40_001, 5, rank)
        if rank == late:
            time.sleep(0.03)
        dist.all_reduce(t)
        seen.append(oracle.digest(t))
    return seen, sorted(set(seen))


def test_same_bits_each_time(pool: harness.Pool) -> None:
    assert {len(distinct) for _, distinct in pool.run(determined)} == {1}


def barriers(rank: int, world: int) -> list[tuple[float, float]]:
    times = []
    for late in range(world):
        if rank == late:
            time.sleep(0.1)
        entered = time.monotonic()
        dist.barrier()
        times.append((entered, time.monotonic()))
    return times


@pytest.mark.parametrize("world", WORLDS)
def test_barrier_holds_everyone(pool: harness.Pool, world: int) -> None:
    told = pool.run(barriers, world=world)
    for i in range(world):
        assert min(t[i][1] for t in told) >= max(t[i][0] for t in told), (
            f"left before rank {i} came"
        )


def objects(rank: int, world: int) -> list[Any]:
    out: list[Any] = [None] * world
    dist.all_gather_object(out, {"rank": rank, "pad": "x" * (rank * 1000)})
    box = [("from", rank)] if rank == 1 else [None]
    dist.broadcast_object_list(box, 1)
    return [[(o["rank"], len(o["pad"])) for o in out], box]


def test_object_collectives(pool: harness.Pool) -> None:
    want = [[(0, 0), (1, 1000), (2, 2000), (3, 3000)], [("from", 1)]]
    assert pool.run(objects) == [want] * 4
