"""This oracle computes in numpy what operations must give, and the rounding error allowed."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from tests.support.environment import ACCELERATOR
from tests.support.guarded import same_bytes

Array = np.ndarray[Any, Any]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
COMPLEX = (torch.complex64, torch.complex128)
REDUCIBLE = (*DTYPES, *COMPLEX)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
MOVABLE = (*REDUCIBLE, *UNSIGNED, *FLOAT8)
ARITHMETIC = ("SUM", "MIN", "MAX", "PRODUCT")
BITWISE = ("BAND", "BOR", "BXOR")
PREMUL = 0.375  # A power of two over a small odd number is exact to store, and its absence shows.


def allowed(op: str, dtype: torch.dtype) -> bool:
    if op == "AVG":
        return dtype != torch.bool
    if op == "PREMUL_SUM":
        return dtype in (*FLOATS, *COMPLEX)
    if dtype in COMPLEX:
        return op == "SUM"
    return op in ARITHMETIC or dtype not in FLOATS


# Inputs are cut from a table, and begin anew after so many elements. The number is prime, so two
# frames differ, and so does what lies a frame too far.
PERIOD = 65_537


@cache
def table(dtype: torch.dtype) -> torch.Tensor:
    rng = np.random.default_rng(20)
    if dtype in FLOATS:
        # Values stay away from zero, so that PRODUCT keeps its digits. Both signs let SUM cancel.
        x = (0.5 + rng.random(PERIOD)) * rng.choice([-1.0, 1.0], PERIOD)
    elif dtype == torch.bool:
        x = rng.random(PERIOD) < 0.5
    else:
        x = rng.integers(0 if dtype == torch.uint8 else -50, 51, PERIOD)
    return torch.from_numpy(x).to(dtype)


@cache
def noise() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(21).integers(0, 256, PERIOD, np.uint8))


def cut(table: torch.Tensor, n: int, *key: int) -> torch.Tensor:
    start = zlib.crc32(repr(key).encode()) % PERIOD
    rounds, end = divmod(start + n, PERIOD)
    if not rounds:
        return table[start:end].clone()
    return torch.cat([table[start:], *[table] * (rounds - 1), table[:end]])


def values(dtype: torch.dtype, n: int, seed: int, rank: int) -> torch.Tensor:
    """Return rank `rank`'s input of case `seed`, which every other rank can compute, too."""
    if dtype in COMPLEX:
        return values(dtype.to_real(), 2 * n, seed, rank).view(dtype)
    return cut(table(dtype), n, seed, rank)


def bits(dtype: torch.dtype, n: int, *key: int) -> torch.Tensor:
    """Return elements with any bits, also NaN, for what is only moved."""
    raw = cut(noise(), n * dtype.itemsize, *key)
    return (raw & 1 if dtype == torch.bool else raw).view(dtype)


def exact(t: torch.Tensor) -> Array:
    if t.dtype in COMPLEX:
        return torch.view_as_real(t).double().numpy()
    return (t.double() if t.dtype in FLOATS else t).numpy()


def spacing(x: Array, dtype: torch.dtype) -> Array:
    """Return the distance between neighboring numbers of a 16-bit kind around x."""
    digits, least = (10, -14) if dtype == torch.float16 else (7, -126)
    exponent = np.frexp(np.maximum(np.abs(x), 2.0**least))[1] - 1
    return np.asarray(np.ldexp(1.0, exponent - digits))


def rounding(want: Array, magnitude: Array, terms: int, dtype: torch.dtype) -> Array:
    """Return the error of `terms` roundings of that magnitude; halves round once at the end."""
    if dtype in HALVES:
        error = terms * 2.0**-23 * magnitude
        return np.asarray(error + 0.5 * spacing(np.abs(want) + error, dtype))
    return np.asarray(terms * torch.finfo(dtype).eps * magnitude)


_FOLD: dict[str, Callable[[Array, Array], Array]] = {
    "SUM": np.add, "AVG": np.add, "PREMUL_SUM": np.add, "PRODUCT": np.multiply,
    "MIN": np.minimum, "MAX": np.maximum,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
}  # fmt: skip
_BOOL = {"SUM": "BOR", "MAX": "BOR", "PRODUCT": "BAND", "MIN": "BAND"}


def reduce(inputs: Sequence[torch.Tensor], op: str) -> tuple[Array, Array | None]:
    """Return the reduction and the error allowed, which is None where the result must be exact."""
    dtype = inputs[0].dtype.to_real()
    xs = [exact(t) for t in inputs]
    op = _BOOL.get(op, op) if dtype == torch.bool else op
    want = xs[0]
    for x in xs[1:]:
        want = _FOLD[op](want, x)
    if dtype not in FLOATS:
        if op == "AVG":  # Integers are rounded toward zero.
            whole = want.astype(np.int64)
            want = (np.sign(whole) * (np.abs(whole) // len(xs))).astype(want.dtype)
        return want, None
    if op in ("MIN", "MAX"):
        return want, np.zeros_like(want)
    scale = {"AVG": 1 / len(xs), "PREMUL_SUM": PREMUL}.get(op, 1.0)
    want = want * scale
    magnitude = np.abs(want) if op == "PRODUCT" else sum(np.abs(x) for x in xs) * scale
    return want, rounding(want, np.asarray(magnitude), len(xs) + 1, dtype)


def neighbor(
    x: Sequence[torch.Tensor],
    rank: int,
    self_weight: float,
    src_weights: Mapping[int, float],
    sent_with: Callable[[int], float] | None = None,
) -> tuple[Array, Array]:
    """Return self_weight x_r + sum of src_weights[i] sent_with(i) x_i, and the error allowed.

    `sent_with(i)` is what rank i scaled its tensor by.
    """
    dtype = x[rank].dtype
    terms = [self_weight * exact(x[rank])]
    terms += [
        w * (sent_with(i) if sent_with else 1.0) * exact(x[i]) for i, w in src_weights.items()
    ]
    want = np.asarray(sum(terms))
    magnitude = np.asarray(sum(np.abs(t) for t in terms))
    error = rounding(want, magnitude, len(terms) + 3, dtype)
    if dtype in HALVES and (sent_with or ACCELERATOR):
        # A sender may scale in the tensor's own kind, and what it rounds is then scaled again.
        error = error + sum(spacing(t, dtype) for t in terms)
    return want, np.asarray(error)


def differs(got: torch.Tensor, want: Array, error: Array | None) -> str:
    """Return nothing when `got` is right, else a text with the first wrong element."""
    have = exact(got.detach().contiguous()).reshape(-1)
    want = want.reshape(-1)
    if have.shape != want.shape:
        return f"{have.shape[0]} elements, not {want.shape[0]}"
    wrong = have != want if error is None else ~(np.abs(have - want) <= error.reshape(-1))
    if not wrong.any():
        return ""
    i = int(np.argmax(wrong))
    slack = "" if error is None else f" +- {error.reshape(-1)[i]:.3g}"
    return f"{int(wrong.sum())} wrong, first at {i}: {have[i]!r}, not {want[i]!r}{slack}"


def moved(got: torch.Tensor, want: torch.Tensor) -> str:
    """Return nothing when `got` has the bits of `want`, else a text with the first wrong byte."""
    a, b = raw(got), raw(want)
    if a.numel() != b.numel():
        return f"{a.numel()} bytes, not {b.numel()}"
    if same_bytes(a, b):
        return ""
    wrong = a != b
    i = int(wrong.int().argmax())
    return f"{int(wrong.sum())} bytes wrong, first at {i}: {a[i]:#x}, not {b[i]:#x}"


def digest(t: torch.Tensor) -> int:
    """Return a checksum of the bits, to compare results that must be the same on all ranks."""
    return zlib.crc32(raw(t).numpy())


def raw(t: torch.Tensor) -> torch.Tensor:
    """Return the bytes of the elements in order."""
    flat = t.detach().reshape(-1)
    if flat.stride() != (1,):
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def overlap(tensors: list[torch.Tensor]) -> bool:
    """Return whether some tensors overlap.

    One that is not contiguous counts with all its storage.
    """
    ranges = []
    for t in tensors:
        storage = t.untyped_storage()
        begin, size = (
            (t.data_ptr(), t.nbytes)
            if t.is_contiguous()
            else (storage.data_ptr(), storage.nbytes())
        )
        if t.numel():
            ranges.append((begin, begin + size))
    ranges.sort()
    return any(end > begin for (_, end), (begin, _) in itertools.pairwise(ranges))
