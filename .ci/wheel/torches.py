"""This module gets what of torch a module is compiled and linked with: headers and libraries.

`python3 torches.py x86_64 [2.15.0 ...]` prints the folders, as BLUEFOG_TORCH takes them.
`python3 torches.py versions` prints the versions. `python3 torches.py environment` prints the
folder of the Python that runs it if it has a torch of one of these minor versions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# These are the torches that the package supports; pyproject.toml repeats them for pip and
# cibuildwheel. A module fits all releases of a minor version, so it is built with the newest that
# was known.
VERSIONS = ("2.13.0", "2.14.1", "2.15.0")
LIBRARIES = ("c10", "torch", "torch_cpu", "torch_python")
# auditwheel must leave these out of the wheel: the process has them once torch is imported.
EXCLUDED = tuple(f"lib{name}.so" for name in LIBRARIES)
_NEEDED = re.compile(rf"torch/(include/.*|version\.py|lib/lib({'|'.join(LIBRARIES)})\.so)")


def folder(version: str, machine: str = "x86_64") -> Path:
    """Return the folder of this torch; download it when it is asked for the first time.

    The file may be for any Python: headers are the same for all, and the names of the libraries,
    which the module needs, too. A build for CPUs is a third of one with CUDA, so it is preferred.
    """
    place = ROOT / "build" / "torch" / f"{version}-{machine}"
    if not (place / "torch" / "version.py").exists():
        shutil.rmtree(place, ignore_errors=True)
        if _download(f"{version}+cpu", machine, place) and (
            failure := _download(version, machine, place)
        ):
            raise SystemExit(f"pip finds no torch {version} for {machine}:\n{failure}")
        (wheel,) = place.glob("*.whl")
        with zipfile.ZipFile(wheel) as file:
            # The last one is version.py, which says that all have come.
            file.extractall(place, sorted(filter(_NEEDED.fullmatch, file.namelist())))
        wheel.unlink()
    return place / "torch"


def _download(version: str, machine: str, place: Path) -> str:
    """Return what pip says if it does not find that torch."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", place]
    command += ["--only-binary=:all:", "--platform", f"manylinux_2_28_{machine}"]
    command += ["--python-version", f"{sys.version_info[0]}.{sys.version_info[1]}"]
    done = subprocess.run([*command, f"torch=={version}"], capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode != 0 else ""


def environment() -> str:
    """Return sys.prefix, or nothing if no torch that the package supports is installed there."""
    try:
        here = metadata.version("torch").split(".")[:2]
    except metadata.PackageNotFoundError:
        return ""
    return sys.prefix if any(here == version.split(".")[:2] for version in VERSIONS) else ""


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["versions"]:
            print(*VERSIONS)
        case ["environment"]:
            print(environment())
        case [machine, *asked]:
            print(*(folder(version, machine) for version in asked or VERSIONS), sep=";")
