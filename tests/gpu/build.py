"""This program builds bluefog_pg for this torch and this device, without a network.

It builds into a folder that has all that an installation would. An installed package stays as it
is, and is not used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tomllib

from tests.gpu import machine

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    env = os.environ | {"CUDACXX": machine.program("nvcc"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    env["CMAKE_GENERATOR"] = "Ninja" if machine.program("ninja") else "Unix Makefiles"
    env["CMAKE_BUILD_PARALLEL_LEVEL"] = str(os.cpu_count() or 1)
    return env


def run(*command: str | Path) -> None:
    print("$", *command, flush=True)
    subprocess.run(list(map(str, command)), check=True, cwd=ROOT, env=environment())


def install(site: Path, capability: str) -> None:
    """Build and install the package into the folder `site`, which is for PYTHONPATH."""
    build = site.with_name("cmake")
    defined = {
        "CMAKE_BUILD_TYPE": "Release",
        "BLUEFOG_CUDA": "ON",
        "CMAKE_CUDA_ARCHITECTURES": f"{capability}-real",
        "Python_EXECUTABLE": sys.executable,
    }
    run("cmake", "-S", ".", "-B", build, *(f"-D{name}={value}" for name, value in defined.items()))
    run("cmake", "--build", build)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "python/bluefog_pg", site / "bluefog_pg", ignore=ignored)
    run("cmake", "--install", build, "--prefix", site)
    write_metadata(site)
    # Python runs this file as it starts. An editable installation would be found first otherwise.
    shutil.copy(Path(__file__).with_name("no_editable.py"), site / "sitecustomize.py")


def write_metadata(site: Path) -> None:
    """Write the metadata by which `import torch` finds the backend."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = site / f"bluefog_pg-{project['version']}.dist-info"
    folder.mkdir()
    named = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (folder / "METADATA").write_text(named)
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {where}" for name, where in points.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    site = Path(sys.argv[1])
    shutil.rmtree(site, ignore_errors=True)
    install(site, sys.argv[2])
