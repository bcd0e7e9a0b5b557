"""What the operations must give, in numpy's float64, and the error that rounding is allowed."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
ARITHMETIC = ("SUM", "MIN", "MAX", "PRODUCT")
BITWISE = ("BAND", "BOR", "BXOR")
PREMUL = 0.375  # a power of two over a small odd number: exact to store, visible when forgotten


def allowed(op: str, dtype: torch.dtype) -> bool:
    if op in ("AVG", "PREMUL_SUM"):
        return dtype in FLOATS
    return op in ARITHMETIC or dtype not in FLOATS


def values(dtype: torch.dtype, n: int, seed: int, rank: int) -> torch.Tensor:
    """Rank `rank`'s input of case `seed`: every rank can compute every other rank's."""
    rng = np.random.default_rng((seed, rank))
    if dtype in FLOATS:
        # Away from zero, so that PRODUCT keeps its digits; both signs, so that SUM cancels.
        x = (0.5 + rng.random(n, dtype=np.float32)) * rng.choice(np.float32([-1, 1]), n)
        return torch.from_numpy(x).to(dtype)
    if dtype == torch.bool:
        return torch.from_numpy(rng.random(n, dtype=np.float32) < 0.5)
    low = 0 if dtype == torch.uint8 else -50  # sums and products stay inside 32 bits
    return torch.from_numpy(rng.integers(low, 51, n)).to(dtype)


def exact(t: torch.Tensor) -> Array:
    return (t.double() if t.dtype in FLOATS else t).numpy()


def spacing(x: Array, dtype: torch.dtype) -> Array:
    """The distance between neighbouring numbers of a 16-bit kind around x."""
    digits, least = (10, -14) if dtype == torch.float16 else (7, -126)
    exponent = np.frexp(np.maximum(np.abs(x), 2.0**least))[1] - 1
    return np.asarray(np.ldexp(1.0, exponent - digits))


def rounding(want: Array, magnitude: Array, terms: int, dtype: torch.dtype) -> Array:
    """The error allowed: `terms` roundings of that magnitude; halves round once, at the end."""
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
    """The reduction and the error allowed (None: exact)."""
    dtype = inputs[0].dtype
    xs = [exact(t) for t in inputs]
    op = _BOOL.get(op, op) if dtype == torch.bool else op
    want = xs[0]
    for x in xs[1:]:
        want = _FOLD[op](want, x)
    if dtype not in FLOATS:
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
    """self_weight x_r + sum of src_weights[i] sent_with(i) x_i; `sent_with`: what i scaled by."""
    dtype = x[rank].dtype
    terms = [self_weight * exact(x[rank])]
    terms += [
        w * (sent_with(i) if sent_with else 1.0) * exact(x[i]) for i, w in src_weights.items()
    ]
    want = np.asarray(sum(terms))
    magnitude = np.asarray(sum(np.abs(t) for t in terms))
    error = rounding(want, magnitude, len(terms) + 3, dtype)
    if sent_with and dtype in HALVES:  # a sender may scale in the tensor's own kind
        error = error + sum(np.asarray(0.5 * spacing(t, dtype)) for t in terms)
    return want, np.asarray(error)


def differs(got: torch.Tensor, want: Array, error: Array | None) -> str:
    """Empty when `got` is right, else the first wrong element in words."""
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


def digest(t: torch.Tensor) -> int:
    """Of the bits: equal on all ranks where a result must be."""
    flat = t.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return zlib.crc32(flat.view(torch.uint8).numpy() if flat.numel() else b"")


def pairwise(
    keep: Callable[[dict[str, Any]], bool] = lambda case: True, **factors: Sequence[Any]
) -> list[dict[str, Any]]:
    """Cases in which every possible pair of two factors' values occurs, the same ones each time."""
    rng = random.Random(20)
    names = list(factors)

    def pairs(case: dict[str, Any]) -> set[tuple[Any, ...]]:
        return {(a, case[a], b, case[b]) for a, b in itertools.combinations(names, 2)}

    def draw() -> dict[str, Any]:
        while True:
            case = {n: rng.choice(factors[n]) for n in names}
            if keep(case):
                return case

    open_pairs: set[tuple[Any, ...]] = set()
    for _ in range(60 * max(map(len, factors.values())) ** 2):  # reachable pairs, found by sampling
        open_pairs |= pairs(draw())
    cases = []
    while open_pairs:
        best = max((draw() for _ in range(40)), key=lambda c: len(pairs(c) & open_pairs))
        hit = pairs(best) & open_pairs
        if hit:
            cases.append(best)
            open_pairs -= hit
    return cases
