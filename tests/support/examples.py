"""This module runs the examples, on ranks that have already imported what they need."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.programs import run_on_ranks

EXAMPLES = Path(__file__).parents[2] / "examples"
# The examples that load digits and draw import these modules.
OF_DIGITS = ("sklearn.datasets", "matplotlib.figure", "tqdm")
ROW = re.compile(r"^ +(\d+) +([\d.]+)% +(\d+) +([\d,]+|-)$", re.MULTILINE)


def need_digits() -> None:
    """Skip the module's tests where a package is missing.

    Importing the packages instead would take seconds in each pytest process.
    """
    for module in OF_DIGITS:
        package = module.partition(".")[0]
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed", allow_module_level=True)


def run(example: str, *args: str, ranks: int = 4, modules: tuple[str, ...] = ()) -> str:
    """Run an example on ranks, and return what they print."""
    ran = run_on_ranks(EXAMPLES / example, *args, ranks=ranks, timeout=120, modules=modules)
    assert ran.code == 0, ran.out
    return ran.out
