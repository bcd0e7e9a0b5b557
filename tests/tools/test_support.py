"""The tests' own tools notice what they are for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tests.support import oracle, pairwise
from tests.support.guarded import LAYOUTS, guarded
from tests.support.pairwise import Case

FACTORS = {"a": range(7), "b": "xyz", "c": (None, 1.5), "d": range(5)}


def odd_ones_out(case: Case) -> bool:
    return not (case.get("a") == 3 and case.get("b") not in (None, "y")) and case.get("d") != 4


def test_every_pair_that_means_something_occurs() -> None:
    every = [dict(zip(FACTORS, v, strict=True)) for v in itertools.product(*FACTORS.values())]
    possible = {p for case in filter(odd_ones_out, every) for p in pairwise.pairs_of(case)}
    cases = pairwise.covering(odd_ones_out, FACTORS, "seed")
    assert {p for case in cases for p in pairwise.pairs_of(case)} == possible
    assert cases == pairwise.covering(odd_ones_out, FACTORS, "seed")
    assert len(cases) < 45  # There are 210 combinations, and at least 7 * 4 are needed.


def test_a_pair_that_no_case_holds_is_an_error() -> None:
    def none(case: Case) -> bool:
        return len(case) < 4

    with pytest.raises(ValueError, match="no case holds"):
        pairwise.covering(none, FACTORS, "seed")


@pytest.mark.slow
@pytest.mark.parametrize("layout", [*LAYOUTS, "expanded"])
@pytest.mark.parametrize("shape", [(), (1,), (0,), (6,), (3, 4), (2, 3, 4), (5, 0, 2)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.bfloat16, torch.complex128])
def test_guarded_memory(dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    """Guarded memory holds what it is given, and sees a byte changed inside, and one outside."""
    x = oracle.bits(dtype, torch.Size(shape).numel(), 1)
    x = x[:1].repeat(x.numel()) if layout == "expanded" else x
    memory = guarded(shape, dtype, layout, x)
    assert memory.tensor.shape == shape
    assert oracle.moved(memory.values(), x) == ""
    if layout != "misaligned":  # torch itself may need the alignment.
        assert oracle.moved(memory.tensor, x) == ""
    assert not memory.changed()
    places = sorted(inside(memory))
    assert len(places) == len(set(places))
    outside = sorted(set(range(memory._memory.numel())) - set(places))
    for place in (*places[:1], *places[-1:]):
        memory._memory[place] ^= 1
        assert memory.changed()
        assert memory.spilled() == (layout == "expanded" and shape != ())
        memory.fill(x)
    for place in (outside[0], outside[-1], outside[len(outside) // 2]):
        memory._memory[place] ^= 1
        assert memory.spilled()
        memory._memory[place] ^= 1


def inside(memory: object) -> set[int]:
    """Return the places of the tensor's bytes, counted another way."""
    tensor, base = memory.tensor, memory._memory.data_ptr()
    places: set[int] = set()
    for index in np.ndindex(*tensor.shape):
        start = tensor[index].data_ptr() - base
        places |= set(range(start, start + tensor.element_size()))
    return places


def test_a_part_of_guarded_memory() -> None:
    whole = guarded((3, 4), torch.int32, "offset")
    part = whole.part(4, (2, 2))
    part.tensor.fill_(1)
    assert not part.spilled()
    whole.tensor[2, 0] = 1
    assert part.spilled()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", oracle.REDUCIBLE)
def test_the_oracle_sees_one_wrong_element(dtype: torch.dtype) -> None:
    """The oracle does so for each kind of reduction, at the first element and at the last one."""
    for op in (*oracle.ARITHMETIC, "AVG", "PREMUL_SUM", *oracle.BITWISE):
        if not oracle.allowed(op, dtype):
            continue
        xs = [oracle.values(dtype, 70_000, 1, r) for r in range(3)]
        want, error = oracle.reduce(xs, op)
        real = dtype.to_real()
        got = torch.from_numpy(np.array(want)).to(real)
        got = torch.view_as_complex(got) if dtype.is_complex else got
        assert oracle.differs(got, want, error) == ""
        for place in (0, 69_999):
            broken = got.clone()
            broken[place] = ~broken[place] if dtype == torch.bool else broken[place] + 1
            assert f"at {place * (2 if dtype.is_complex else 1)}:" in oracle.differs(
                broken, want, error
            )
            assert "1 bytes wrong" in oracle.moved(got.view(torch.uint8), flipped(got, place))


def flipped(t: torch.Tensor, place: int) -> torch.Tensor:
    raw = t.view(torch.uint8).clone()
    raw[place] ^= 0x80
    return raw


def test_inputs_differ_by_rank_case_and_place() -> None:
    for dtype in oracle.MOVABLE:
        size = (300 << 10) // dtype.itemsize
        x = oracle.bits(dtype, size, 1, 2).view(torch.uint8)
        for other in (oracle.bits(dtype, size, 1, 3), oracle.bits(dtype, size, 2, 2)):
            assert (other.view(torch.uint8) != x).float().mean() > 0.4
        frame = 128 << 10
        assert (x[frame : 2 * frame] != x[:frame]).float().mean() > 0.4
        assert torch.equal(oracle.bits(dtype, 5, 1, 2), oracle.bits(dtype, size, 1, 2)[:5]) or (
            # These may be NaN, which equals nothing.
            oracle.bits(dtype, 5, 1, 2).is_floating_point()
        )
