"""The CUDA kernels' code runs on a machine without a GPU (see tests/support/fibers)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fibers
from tests.support.environment import ROOT

pytestmark = pytest.mark.thorough

# These tests need CUDA itself, or take fibers hours.
LEFT_OUT = "graph or blocks_take"


@pytest.fixture(scope="module")
def library() -> None:
    nvcc = shutil.which("nvcc") or str(ROOT / "build/nvcc/nvidia/cu13/bin/nvcc")
    places = (Path(nvcc).resolve().parents[1], Path("/usr/local/cuda"))
    found = [place for place in places if (place / "include/cuda_fp16.h").exists()]
    if not found:
        pytest.skip("CUDA's headers are not here: no nvcc")
    fibers.build(found[0])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["weighted_sum", "compression"])
def test_kernels(library: None, name: str) -> None:
    tests = [f"tests/gpu/test_{name}.py", "-k", f"not ({LEFT_OUT})"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.support.fibers", *tests]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
