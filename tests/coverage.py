"""This program says which lines and branches of src/ and python/ the tests run, by folder.

`python -m tests.coverage build` builds an instrumented package into build/coverage. `python -m
tests.coverage report` prints a table of what has run since. build/coverage/*.json has each file's
figures.

`make coverage` runs all tests between the two. The instrumented package is slower, so a test of a
promised time may fail there. Such a failure is printed and changes nothing else.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build/coverage"
SITE, CMAKE, CONFIG = OUT / "site", OUT / "cmake", OUT / "coveragerc"
# A file has four counts: lines that ran, lines, branches taken, branches.
Counts = tuple[int, int, int, int]


def run(*command: str | Path) -> None:
    print("$", *command, flush=True)
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True)


def build() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    install()
    configure()
    for old in (*CMAKE.rglob("*.gcda"), *OUT.glob("python.data*")):
        old.unlink()


def install() -> None:
    """Install the instrumented package into a folder, which PYTHONPATH puts before any other."""
    shutil.rmtree(SITE, ignore_errors=True)
    defined = {"BLUEFOG_COVERAGE": "ON", "BLUEFOG_CUDA": "OFF"}
    options = [f"-Ccmake.define.{name}={value}" for name, value in defined.items()]
    options += [
        f"-Cbuild-dir={CMAKE}",
        "-Ccmake.build-type=RelWithDebInfo",
        "-Cinstall.strip=false",
    ]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, *options, "--target", SITE, ".")
    shutil.copy(ROOT / "tests/gpu/no_editable.py", SITE / "sitecustomize.py")


def configure() -> None:
    """Tell coverage.py to count in the ranks, too, which are forks of a server."""
    CONFIG.write_text(
        f"[run]\nbranch = true\nparallel = true\nsigterm = true\npatch = subprocess, fork, _exit\n"
        f"data_file = {OUT}/python.data\nsource_pkgs = bluefog_pg\n"
        f"[paths]\nsource =\n    {ROOT}/python/bluefog_pg\n    {SITE}/bluefog_pg\n"
        # Some tests import a copy of the package.
        f"[report]\ninclude = {ROOT}/python/*\n"
    )


def counts_of_cpp() -> dict[str, Counts]:
    out = OUT / "cpp.json"
    run(
        sys.executable, "-m", "gcovr", "--root", ROOT, "--filter", "src/(?!device/cuda/)",
        "--json-summary", out,
        "--exclude-throw-branches", "--gcov-ignore-errors=all", "--gcov-ignore-parse-errors=all",
        CMAKE,
    )  # fmt: skip
    keys = ("line_covered", "line_total", "branch_covered", "branch_total")
    files = json.loads(out.read_text())["files"]
    return {file["filename"]: tuple(file[key] for key in keys) for file in files}


def counts_of_python() -> dict[str, Counts]:
    out = OUT / "python.json"
    coverage = (sys.executable, "-m", "coverage")
    run(*coverage, "combine", "--quiet", f"--rcfile={CONFIG}")
    run(*coverage, "json", "--quiet", f"--rcfile={CONFIG}", "-o", out)
    keys = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    files = json.loads(out.read_text())["files"]
    return {name: tuple(of["summary"][key] for key in keys) for name, of in files.items()}


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def print_table(counts: dict[str, Counts]) -> None:
    folders: dict[str, list[Counts]] = defaultdict(list)
    for name, of_file in counts.items():
        folders[str(Path(name).parent)].append(of_file)
    print("| folder | lines | branches |\n| --- | ---: | ---: |")
    for folder, files in sorted(folders.items()):
        ran, lines, taken, branches = (sum(numbers) for numbers in zip(*files, strict=True))
        print(f"| {folder} | {share(ran, lines)} | {share(taken, branches)} |")


def report() -> None:
    print_table(counts_of_cpp() | counts_of_python())


if __name__ == "__main__":
    {"build": build, "report": report}[sys.argv[1]]()
