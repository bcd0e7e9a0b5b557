"""The examples, on ranks that have imported what they need before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.programs import run_on_ranks

EXAMPLES = Path(__file__).parents[2] / "examples"
# What the examples import that load digits and draw.
OF_DIGITS = ("sklearn.datasets", "matplotlib.figure", "tqdm")
ROW = re.compile(r"^ +(\d+) +([\d.]+)% +(\d+) +([\d,]+|-)$", re.MULTILINE)


def need_digits() -> None:
    for module in OF_DIGITS:
        pytest.importorskip(module)


def run(example: str, *args: str, ranks: int = 4, modules: tuple[str, ...] = ()) -> str:
    """What its ranks print."""
    ran = run_on_ranks(EXAMPLES / example, *args, ranks=ranks, timeout=120, modules=modules)
    assert ran.code == 0, ran.out
    return ran.out
