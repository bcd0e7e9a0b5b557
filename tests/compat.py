"""This program builds and tests the package with each of several versions of torch, in turn.

    python -m tests.compat 2.13.0 2.14.1 2.15.0        in the root of the repository

`make compat` calls it. Each version has an environment and a build of its own in
build/compat/<version>, with the logs of what ran there. build/compat/summary.md has one row for
each. The program goes on after a failure; its exit code is 1 if there was one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build/compat"
# Each environment runs these steps. A step has the name of its column, and make's targets. The
# later steps run even if a target fails.
STEPS = {
    "build": ("dev",),
    "C++ tests": ("test-cpp",),
    "make test": ("test-python",),
    "torch's suites": ("suites",),
}
PYTEST = re.compile(r"^=* ?((?:\d+ [a-z]+,? ?)+) in [\d.]+s", re.MULTILINE)
CTEST = re.compile(r"tests passed(?:, (?P<failed>\d+) tests? failed)? out of (?P<all>\d+)")
SUITES = re.compile(
    r"^== \d+ run: (?P<passed>\d+) passed, (?P<failed>\d+) failed "
    r"\(.*; (?P<expected>\d+) expected\), (?P<skipped>\d+) skipped",
    re.MULTILINE,
)


@dataclass
class Step:
    """A Step is one column of a version's row: its counts by outcome, and whether it is good."""

    good: bool
    minutes: float
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self.counts.items() if count)
        said = counts or ("done" if self.good else "see its log")
        return f"{'' if self.good else '**FAILED** '}{said}, {self.minutes:.0f} min"


def counted(log: str) -> dict[str, int]:
    """Add up what pytest, ctest and torch's suites say of their tests."""
    counts = dict.fromkeys(("passed", "failed", "expected to fail", "skipped"), 0)
    for found in PYTEST.finditer(log):
        for count, what in re.findall(r"(\d+) ([a-z]+)", found[1]):
            column = {"error": "failed", "errors": "failed"}.get(what, what)
            if column in counts:
                counts[column] += int(count)
    for found in CTEST.finditer(log):
        failed = int(found["failed"] or 0)
        counts["failed"] += failed
        counts["passed"] += int(found["all"]) - failed
    for found in SUITES.finditer(log):
        counts["passed"] += int(found["passed"])
        counts["failed"] += int(found["failed"]) - int(found["expected"])
        counts["expected to fail"] += int(found["expected"])
        counts["skipped"] += int(found["skipped"])
    return counts


def environment(home: Path) -> dict[str, str]:
    """Return the environment in which make finds that folder's Python first."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    env.pop("PYTHONHOME", None)
    return env | {"VIRTUAL_ENV": f"{home}", "PATH": f"{home}/bin{os.pathsep}{os.environ['PATH']}"}


def run(log: Path, command: list[str], env: dict[str, str]) -> Step:
    print(f"{log.relative_to(ROOT)}: {' '.join(command)}", flush=True)
    begin = time.monotonic()
    with log.open("w") as out:
        rc = subprocess.run(
            command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT
        ).returncode
    text = log.read_text(errors="replace")
    counts = counted(text)
    # Make ends well with --ignore-errors, whatever its recipes did.
    good = rc == 0 and "(ignored)" not in text and not counts["failed"]
    return Step(good, (time.monotonic() - begin) / 60, counts)


def steps(version: str) -> Iterator[tuple[str, Step]]:
    """Make the environment of that torch, then build and test in it."""
    folder = OUT / version
    home = folder / "venv"
    env = environment(home)
    folder.mkdir(parents=True, exist_ok=True)
    pip = [f"{home}/bin/python3", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    make = ["make", "--ignore-errors", f"BUILT=build/compat/{version}/cmake"]
    if not (home / "bin/python3").exists():
        made = run(folder / "venv.log", [sys.executable, "-m", "venv", f"{home}"], env)
        if not made.good:
            yield "build", made
            return
    got = run(folder / "torch.log", [*pip, f"torch=={version}"], env)
    if not got.good:
        yield "build", got
        return
    for name, targets in STEPS.items():
        log = folder / f"{targets[0]}.log"
        command = [*make, *targets] if name != "build" else ["make", make[-1], *targets]
        step = run(log, command, env)
        yield name, step
        if name == "build" and not step.good:
            return


def main(versions: list[str]) -> int:
    rows, all_good = [], True
    for version in versions:
        found = dict(steps(version))
        all_good &= all(step.good for step in found.values()) and len(found) == len(STEPS)
        cells = (str(found.get(name, "did not run")) for name in STEPS)
        rows.append(f"| {version} | {' | '.join(cells)} |")
        head = f"| torch | {' | '.join(STEPS)} |\n| --- |{' --- |' * len(STEPS)}\n"
        (OUT / "summary.md").write_text(head + "\n".join(rows) + "\n")
    print((OUT / "summary.md").read_text(), end="")
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
