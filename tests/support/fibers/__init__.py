"""This pytest plugin runs tests of the CUDA kernels on CPU tensors, with fibers for GPU threads.

The kernels' own code is compiled as C++. The tests say whether kernels compute the right numbers,
stay where they may read and write vectors, and wait for each other. They say nothing of CUDA.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build/fibers"
LIBRARY = BUILD / "libfibers.so"
FILES = sorted(ROOT.glob("src/device/cuda/*.cu"))
# This matches kernel<types><<<blocks, threads, bytes, stream>>>(arguments).
LAUNCH = re.compile(
    r"([\w:]+(?:<[^;<>]*(?:<[^<>]*>[^;<>]*)*>)?)\s*<<<(.*?)>>>\((.*?)\);", re.DOTALL
)
# _FORTIFY_SOURCE takes jumps from one fiber's stack to another's for an error.
FLAGS = (
    "-std=c++20 -O1 -w -fPIC -ffp-contract=off -fno-strict-aliasing -fvisibility=hidden"
    " -U_FORTIFY_SOURCE"
)
CHECKS = ["-fsanitize=alignment,bounds,shift", "-fno-sanitize-recover=all"]


def as_cpp(code: str) -> str:
    """Return a kernel's code as C++, in which launches are function calls."""
    return '#include "cuda.hpp"\n' + LAUNCH.sub(r"fibers::launch(\2, [&] { \1(\3); });", code)


def build(cuda: Path) -> None:
    """Build the library. `cuda` is the folder of CUDA's include and lib64."""
    BUILD.mkdir(parents=True, exist_ok=True)
    objects = []
    for file in FILES:
        code, made = BUILD / f"{file.stem}.cpp", BUILD / f"{file.stem}.o"
        code.write_text(as_cpp(file.read_text()))
        folders = [f"-I{HERE}", f"-I{ROOT / 'src'}", "-isystem", str(cuda / "include")]
        command = ["g++", *FLAGS.split(), *CHECKS, *folders, "-c", str(code), "-o", str(made)]
        subprocess.run(command, check=True)
        objects.append(str(made))
    runtime = [f"-L{cuda / 'lib64'}", "-lcudart_static", "-ldl", "-lrt", "-lpthread"]
    command = ["g++", "-shared", *CHECKS, "-o", str(LIBRARY), *objects, *runtime]
    subprocess.run(command, check=True)


def pytest_configure() -> None:
    from tests.gpu import kernels

    kernels.DEVICE = "cpu"
    kernels.on_cuda = pytest.mark.timeout(600)
    kernels.path = lambda: LIBRARY
    kernels.stream = lambda: 0
    torch.cuda.synchronize = lambda: None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make the tests' inputs smaller, as fibers are slow."""
    for item in items:
        module = item.getparent(pytest.Module)
        assert module is not None
        for name, value in {"LARGE": 9011, "RAGGED": (1, 7, 255, 256, 2050)}.items():
            if hasattr(module.obj, name):
                setattr(module.obj, name, value)
