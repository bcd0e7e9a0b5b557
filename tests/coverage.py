"""Says which lines and branches of src/ and python/ the tests run, in each folder.

python -m tests.coverage    builds an instrumented package into build/coverage, runs every test on
                            it, and prints a table; build/coverage/*.json has each file's figures

The instrumented package is slower, so a test of a promised time may fail here. Such a failure is
printed and changes nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build/coverage"
SITE, CMAKE, CONFIG = OUT / "site", OUT / "cmake", OUT / "coveragerc"
# Each file's counts: lines that ran, lines, branches taken, branches.
Counts = tuple[int, int, int, int]
BESIDE = ("-n", "3", "--dist", "worksteal")
PASSES: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({}, ("-m", "not alone", *BESIDE)),
    ({}, ("-m", "alone")),
    ({"BLUEFOG_ACCELERATOR": "cpu:gloo"}, ("-m", "gloo", *BESIDE)),
    ({"BLUEFOG_TEST_DEVICE": "simulated"}, ("-m", "device", *BESIDE)),
    ({"BLUEFOG_TRANSPORT": "mpi"}, ("-m", "mpi", *BESIDE)),
)


def run(*command: str | Path, **env: str) -> int:
    print("$", *(f"{name}={value}" for name, value in env.items()), *command, flush=True)
    return subprocess.run(list(map(str, command)), cwd=ROOT, env=os.environ | env).returncode


def need(*command: str | Path, **env: str) -> None:
    if code := run(*command, **env):
        sys.exit(code)


def build() -> None:
    """Install the instrumented package into a folder, which PYTHONPATH puts before any other."""
    shutil.rmtree(SITE, ignore_errors=True)
    defined = {"BLUEFOG_COVERAGE": "ON", "BLUEFOG_TESTS": "ON", "BLUEFOG_CUDA": "OFF"}
    options = [f"-Ccmake.define.{name}={value}" for name, value in defined.items()]
    options += [
        f"-Cbuild-dir={CMAKE}",
        "-Ccmake.build-type=RelWithDebInfo",
        "-Cinstall.strip=false",
    ]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
    need(*pip, *options, "--target", SITE, ".")
    shutil.copy(ROOT / "tests/gpu/no_editable.py", SITE / "sitecustomize.py")
    need("cmake", "--build", CMAKE, "--target", "cpp-tests")


def configure() -> None:
    """Tell coverage.py to count in the ranks, too, which are forks of a server."""
    CONFIG.write_text(
        f"[run]\nbranch = true\nparallel = true\nsigterm = true\npatch = subprocess, fork, _exit\n"
        f"data_file = {OUT}/python.data\nsource_pkgs = bluefog_pg\n"
        f"[paths]\nsource =\n    {ROOT}/python/bluefog_pg\n    {SITE}/bluefog_pg\n"
    )


def count_tests() -> None:
    for old in (*CMAKE.rglob("*.gcda"), *OUT.glob("python.data*")):
        old.unlink()
    run("ctest", "--test-dir", CMAKE, "--output-on-failure", "--parallel", "4", "--quiet")
    counted = (sys.executable, "-m", "coverage", "run", f"--rcfile={CONFIG}")
    for env, chosen in PASSES:
        run(*counted, "-m", "pytest", "-q", *chosen, **env, PYTHONPATH=str(SITE))


def counts_of_cpp() -> dict[str, Counts]:
    out = OUT / "cpp.json"
    need(
        sys.executable, "-m", "gcovr", "--root", ROOT, "--filter", "src/", "--json-summary", out,
        "--exclude-throw-branches", "--gcov-ignore-errors=all", "--gcov-ignore-parse-errors=all",
        CMAKE,
    )  # fmt: skip
    keys = ("line_covered", "line_total", "branch_covered", "branch_total")
    files = json.loads(out.read_text())["files"]
    return {file["filename"]: tuple(file[key] for key in keys) for file in files}  # type: ignore[misc]


def counts_of_python() -> dict[str, Counts]:
    out = OUT / "python.json"
    coverage = (sys.executable, "-m", "coverage")
    need(*coverage, "combine", "--quiet", f"--rcfile={CONFIG}")
    need(*coverage, "json", "--quiet", f"--rcfile={CONFIG}", "-o", out)
    keys = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    files = json.loads(out.read_text())["files"]
    return {name: tuple(of["summary"][key] for key in keys) for name, of in files.items()}  # type: ignore[misc]


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


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    build()
    configure()
    count_tests()
    print_table(counts_of_cpp() | counts_of_python())


if __name__ == "__main__":
    main()
