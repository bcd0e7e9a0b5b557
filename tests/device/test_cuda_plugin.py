"""Without a GPU, libbluefog_cuda.so shows what it needs and offers, and its devices.

`make gpu` says, on a GPU, whether it computes the right numbers.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bluefog_pg._core import accelerator
from bluefog_pg._core.loader import load
from tests.support.environment import ROOT

MODULE = Path(load().__file__ or "")
SYSTEM = ("libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libgcc_s.so",
          "libstdc++.so", "ld-linux")  # fmt: skip
PTX, MACHINE_CODE = 1, 2


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def needed(library: Path) -> list[str]:
    named = re.findall(r"NEEDED.*\[(.+?)\]", output("readelf", "-d", str(library)))
    return [name for name in named if not name.startswith(SYSTEM)]


def symbols(library: Path, which: str) -> list[str]:
    return [line.split()[-1] for line in output("nm", "-D", which, str(library)).splitlines()]


def device_code(library: Path) -> set[tuple[int, int]]:
    """Return (kind, compute capability) of each part, as the fat binary's headers have it."""
    table = output("readelf", "-SW", str(library))
    place = re.search(r"\.nv_fatbin\s+PROGBITS\s+\w+\s+(\w+)\s+(\w+)", table)
    if place is None:
        return set()
    begin, size = (int(number, 16) for number in place.groups())
    data, found, at = library.read_bytes()[begin : begin + size], set(), 0
    while (at := data.find(struct.pack("<I", 0xBA55ED50), at)) >= 0:
        header, length = struct.unpack_from("<HQ", data, at + 6)
        part, at = at + header, at + header + length
        while part < at:
            kind, _, own_header, own_length = struct.unpack_from("<HHIQ", data, part)
            found.add((kind, struct.unpack_from("<I", data, part + 28)[0]))
            part += own_header + own_length
    return found


def architectures(file: Path, pattern: str) -> list[str]:
    """Return the GPUs that CMake compiles for: `native`, or numbers that may end in -real."""
    said = re.search(pattern, file.read_text(), re.MULTILINE)
    assert said is not None
    return re.split("[ ;]", said[1])


def code_for(asked: list[str]) -> set[tuple[int, int]]:
    """Return the parts that a build for these devices has, in the form of device_code()."""
    machine_code = {(MACHINE_CODE, int(sm.removesuffix("-real"))) for sm in asked}
    return machine_code | {(PTX, int(sm)) for sm in asked if sm.isdigit()}


@pytest.fixture(scope="module")
def plugin() -> Path:
    for folder in (MODULE.parent, ROOT / "build" / sys.implementation.cache_tag):
        if (folder / "libbluefog_cuda.so").exists():
            return folder / "libbluefog_cuda.so"
    pytest.skip("libbluefog_cuda.so was not built: no nvcc when bluefog_pg was installed")


def test_plugin_lies_beside_the_module_or_in_a_package_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, beside = tmp_path / "_C.so", tmp_path / "libbluefog_cuda.so"
    monkeypatch.setattr(accelerator, "load", lambda: SimpleNamespace(__file__=str(module)))
    assert accelerator._own_plugin("cuda") == str(beside)
    package = tmp_path / "bluefog_pg_cuda13"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert accelerator._own_plugin("cuda") == str(package / beside.name)
    beside.touch()
    assert accelerator._own_plugin("cuda") == str(beside)


def test_one_plugin_serves_every_torch(plugin: Path) -> None:
    assert needed(plugin) == []
    assert symbols(plugin, "--defined-only") == ["bluefog_device_get"]


def test_it_has_code_for_the_devices_that_it_was_built_for(plugin: Path) -> None:
    found = device_code(plugin)
    cache = ROOT / "build" / sys.implementation.cache_tag / "CMakeCache.txt"
    if not cache.exists():
        pytest.skip("the package was built in another folder, as by make compat")
    asked = architectures(cache, r"^CMAKE_CUDA_ARCHITECTURES:\w+=(.*)$")
    if asked == ["native"]:  # Without a GPU, nvcc compiles for its default.
        assert MACHINE_CODE in {kind for kind, _ in found}
    else:
        assert found >= code_for(asked)
    assert device_code(MODULE) == set()  # The search finds nothing where nothing is.


def test_a_wheel_is_built_for_the_devices_that_torch_has() -> None:
    """`make dev` compiles for one kind of device, and other builds for those of CMakeLists.txt."""
    found = code_for(architectures(ROOT / "CMakeLists.txt", r"CUDA_ARCHITECTURES (.*) CACHE"))
    assert {(MACHINE_CODE, sm) for sm in (75, 80, 86, 90, 100, 120)} <= found
    assert (PTX, 120) in found


def test_one_module_serves_torch_with_and_without_cuda() -> None:
    wanted = symbols(MODULE, "-u")
    assert wanted
    assert not [
        name for name in wanted if re.match(r"(cuda|cu[A-Z]|nccl)|.*(c104cuda|2at4cuda)", name)
    ]
    assert [name for name in needed(MODULE) if "torch" in name]  # readelf finds what is needed.
    assert not [name for name in needed(MODULE) if "cuda" in name or "nccl" in name]
