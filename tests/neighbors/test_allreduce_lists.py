"""neighbor_allreduce takes lists of tensors of any kinds and layouts, which travel as one."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from tests.support import digraphs, harness, inrank, oracle
from tests.support.digraphs import Spec
from tests.support.guarded import LAYOUTS, guarded

pytestmark = pytest.mark.gloo

FRAME = 131_072  # What travels is cut at so many bytes.
KINDS = (*oracle.FLOATS, *oracle.COMPLEX)
SHAPES = ((), (0,), (1,), (3,), (2, 3), (5, 0, 2), (127,), (41, 100), (16_385,), (33, 1021))
Entry = tuple[torch.dtype, tuple[int, ...], str]
entries = st.tuples(
    st.sampled_from(KINDS), st.sampled_from(SHAPES), st.sampled_from((*LAYOUTS, "expanded"))
)


def value(entry: Entry, seed: int, rank: int) -> torch.Tensor:
    dtype, shape, layout = entry
    x = oracle.values(dtype, math.prod(shape), seed, rank)
    return x[:1].repeat(len(x)) if layout == "expanded" else x


def verdict(out: torch.Tensor, entry: Entry, spec: Spec, number: int, rank: int) -> str:
    dtype, shape, _ = entry
    if (out.dtype, tuple(out.shape), out.requires_grad) != (dtype, shape, False):
        return f"{out.dtype} {out.shape}"
    if not out.is_contiguous():
        return "not contiguous"
    xs = [value(entry, 100 * spec["seed"] + number, r) for r in range(spec["world"])]
    return oracle.differs(out, *oracle.neighbor(xs, rank, *digraphs.row(spec, rank)))


def faults(rank: int, spec: Spec) -> list[str]:
    """Average a list as `spec` says, and return what is wrong with the result."""
    import bluefog_pg

    digraphs.prepare(spec)
    listed: list[Entry] = spec["list"]
    seed = 100 * spec["seed"]
    mine = [
        guarded(shape, dtype, layout, value((dtype, shape, layout), seed + i, rank))
        for i, (dtype, shape, layout) in enumerate(listed)
    ]
    arguments = digraphs.plan(spec, rank)[0]
    tensors = [g.tensor for g in mine]
    if spec["async"]:
        work = bluefog_pg.neighbor_allreduce(tensors, **arguments, async_op=True)
        work.wait()
        out = work.result()
    else:
        out = bluefog_pg.neighbor_allreduce(tensors, **arguments)
    if not isinstance(out, list) or len(out) != len(listed):
        return [f"not a list of {len(listed)}: {out!r}"]
    bad = [verdict(o, e, spec, i, rank) for i, (o, e) in enumerate(zip(out, listed, strict=True))]
    bad = [f"tensor {i}: {text}" for i, text in enumerate(bad) if text]
    if oracle.overlap([*tensors, *out]):
        bad.append("results lie in each other, or in an input")
    if any(g.changed() for g in mine):
        bad.append("an input, or what is beside it, was changed")
    return bad


def fused(rank: int, world: int, spec: Spec) -> None:
    bad = faults(rank, spec)
    assert not bad, bad


LISTS = {"list": st.lists(entries, min_size=1, max_size=6)}


@pytest.mark.slow
@pytest.mark.parametrize("mode", digraphs.MODES)
def test_lists_on_random_digraphs(pool: harness.Pool, mode: str) -> None:
    @digraphs.relaxed
    @given(digraphs.specs(mode, **LISTS))
    def check(spec: Spec) -> None:
        pool.run(fused, spec, world=spec["world"])

    check()


def at_the_cut(rank: int, world: int, kinds: tuple[torch.dtype, ...]) -> None:
    """Average where the first tensor ends near the end of the first frame, or at it."""
    spec: Spec = {
        "world": world,
        "edges": {(i, j): 0.1 * (1 + i) - 0.2 * j for i in range(world) for j in range(world)},
        "mode": "weighted",
        "seed": 1,
        "async": False,
    }
    bad = []
    first, *others = kinds
    for beyond in (-16, -8, -4, -2, 0, 2, 4, 8, 16):
        count = (FRAME + beyond) // first.itemsize
        sizes = [count, *(FRAME // (2 * dtype.itemsize) + 3 for dtype in others), 1]
        spec["list"] = [
            (d, (n,), "contiguous") for d, n in zip((*kinds, first), sizes, strict=True)
        ]
        bad += [f"{beyond} bytes beyond: {text}" for text in faults(rank, spec)]
    assert not bad, bad


@pytest.mark.parametrize(
    "kinds",
    [
        (torch.float32,),
        (torch.bfloat16, torch.float64, torch.float16, torch.float32),
        (torch.float16, torch.complex128, torch.bfloat16),
        (torch.complex64, torch.float32, torch.float16),
    ],
    ids=lambda kinds: "-".join(str(k).removeprefix("torch.") for k in kinds),
)
def test_frames_are_cut_anywhere(pool: harness.Pool, kinds: tuple[torch.dtype, ...]) -> None:
    pool.run(at_the_cut, kinds, world=3)


def together(rank: int, world: int) -> None:
    """Average a thousand small tensors and a large one in one operation, as each alone."""
    import bluefog_pg

    bluefog_pg.set_topology()
    sizes = [*(i % 40 for i in range(1000)), 300_001]
    tensors = [oracle.values(oracle.FLOATS[i % 4], n, i, rank) for i, n in enumerate(sizes)]
    before = bluefog_pg.stats()["operations"]
    out = bluefog_pg.neighbor_allreduce(tensors)
    asked = bluefog_pg.stats()["operations"] - before
    alone = [bluefog_pg.neighbor_allreduce(t) for t in tensors]
    assert asked == 1, f"{asked} operations"
    moved = [oracle.moved(a, b) for a, b in zip(out, alone, strict=True)]
    bad = [f"tensor {i}: {text}" for i, text in enumerate(moved) if text]
    assert not bad, bad


def test_a_list_is_one_operation_with_the_bits_of_many(pool: harness.Pool) -> None:
    pool.run(together)


def shared(rank: int, world: int) -> list[Any]:
    """Average one tensor twice, a tuple, and lists of one and of nothing but empty tensors."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.full((3,), float(rank))
    a, b = bluefog_pg.neighbor_allreduce([x, x])
    (c,) = bluefog_pg.neighbor_allreduce((x,))
    d, e = bluefog_pg.neighbor_allreduce([torch.empty(0), torch.empty(2, 0, dtype=torch.float64)])
    a.zero_()
    return [float(b[0]), float(c[0]), x.tolist(), d.shape, e.shape]


def test_lists_of_any_length(pool: harness.Pool) -> None:
    for rank, (*means, x, d, e) in enumerate(pool.run(shared)):
        near = (rank + (rank - 1) % 4 + (rank - 2) % 4) / 3
        assert means == pytest.approx([near] * 2)
        assert (x, d, e) == ([rank] * 3, (0,), (2, 0))


def unlike(rank: int, world: int, shapes: list[list[int]], dtypes: list[Any]) -> list[Any]:
    """Both ranks send as many bytes; what lies where differs."""
    import bluefog_pg

    peer = 1 - rank
    weights: dict[str, Any] = {"self_weight": 0.5, "src_weights": {peer: 0.5}}
    tensors = [torch.ones(n, dtype=dtypes[rank]) for n in shapes[rank]]
    error = inrank.catch(bluefog_pg.neighbor_allreduce, tensors, **weights, dst_weights=[peer])
    after = bluefog_pg.neighbor_allreduce([torch.full((2,), float(rank))], **weights)
    return [error, after[0].tolist()]


@harness.of_the_cpus_engine("an error ends the group's calls")
@pytest.mark.parametrize("n", [10, 100_000])
@pytest.mark.parametrize("dtypes", [["float32"] * 2, ["float16", "bfloat16"]], ids=["cut", "kind"])
def test_lists_that_differ_are_told_apart(pool: harness.Pool, n: int, dtypes: list[str]) -> None:
    shapes = [[n, 2 * n], [2 * n, n]] if dtypes[0] == dtypes[1] else [[n, n]] * 2
    told = pool.run(unlike, shapes, [getattr(torch, d) for d in dtypes], world=2)
    for error, after in told:
        text = harness.raised(error, "Mismatch", ranks=[0, 1]).text
        assert "neighbor_allreduce" in text, text
        assert after == [0.5, 0.5]
