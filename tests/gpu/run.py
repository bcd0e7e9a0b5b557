"""Build, test and time all that needs a GPU, on one, in less than nine minutes, for `make gpu`.

python -m tests.gpu.run              all stages
python -m tests.gpu.run build speed  some of them
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu import machine

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build/gpu"
SITE = OUT / "site"
BUDGET = 530.0  # seconds for all stages together
PYTHON = sys.executable


@dataclass
class Result:
    name: str
    result: str  # one of: passed, failed, out of time, left out
    seconds: float = 0.0
    told: str = ""
    figures: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Stage:
    name: str
    limit: float  # seconds
    command: list[str]
    reason: str = ""  # the reason to leave the stage out, if there is one
    figures: Callable[[], list[dict[str, Any]]] = list


def pytest(name: str, *args: str) -> list[str]:
    # Without the plugin, pytest does not know the option in pyproject.toml. The run goes on all the
    # same.
    has_timeouts = machine.is_there("pytest_timeout")
    options = ["--timeout=100"] if has_timeouts else ["-o", "addopts=-ra"]
    return [PYTHON, "-m", "pytest", "-q", *options, f"--junitxml={OUT / name}.xml", *args]


def tests(name: str, limit: float, *args: str) -> Stage:
    return Stage(name, limit, pytest(name, *args))


def several_at_once(most: int = 6) -> list[str]:
    """Return pytest's options for tests that leave the GPU idle most of the time."""
    at_once = min(most, (os.cpu_count() or 1) // 2)
    return ["-n", str(at_once)] if at_once > 1 and machine.is_there("xdist") else []


WINDOWS = "put_get_update", "create_free", "tensors", "dead_ranks"


def tests_of_cpus_windows() -> Stage:
    """Return a stage that runs the CPU's window tests with tensors on the GPU."""
    files = [f"tests/windows/test_{name}.py" for name in WINDOWS]
    command = pytest("cpus_windows", *several_at_once(), "-k", "not hosts", *files)
    return Stage("cpus_windows", 120, ["env", "BLUEFOG_TEST_DEVICE=cuda", *command])


def memcheck() -> Stage:
    tool = machine.program("compute-sanitizer")
    chosen = "(misaligned or in_place or int8 or equal or ignores) and not graph"
    files = ["tests/gpu/test_weighted_sum.py", "tests/gpu/test_compression.py"]
    command = [tool, "--tool", "memcheck", "--error-exitcode", "9"]
    command += ["--target-processes", "application-only"]
    command += pytest("memcheck", "-k", chosen, "-x", *files)
    return Stage("memcheck", 110, command, "" if tool else "there is no compute-sanitizer")


def speed_figures() -> list[dict[str, Any]]:
    file = OUT / "speed.json"
    return json.loads(file.read_text()) if file.exists() else []


def stages(capability: str) -> list[Stage]:
    on, gpu = "tests/device/test_{}.py".format, "tests/gpu/test_{}.py".format
    many = several_at_once()
    return [
        Stage("build", 240, [PYTHON, "-m", "tests.gpu.build", str(SITE), capability]),
        tests("kernels", 90, *many, gpu("weighted_sum"), gpu("compression")),
        tests("on_device", 150, *many, on("operations"), on("notices"), "-k", "cuda"),
        tests(
            "programs", 150, *several_at_once(8),
            *map(gpu, ("training", "nccl", "graphs", "examples")),
        ),
        tests("alone", 100, gpu("memory"), gpu("handles"), gpu("mishaps")),
        tests("windows", 150, *many, on("windows"), "-k", "cuda"),
        tests_of_cpus_windows(),
        Stage(
            "speed", 140, [PYTHON, "-m", "tests.gpu.speed", str(OUT / "speed.json")],
            figures=speed_figures,
        ),
        memcheck(),
    ]  # fmt: skip


def environment() -> dict[str, str]:
    paths = [SITE, ROOT, ROOT / "examples", os.environ.get("PYTHONPATH", "")]
    joined = os.pathsep.join(str(path) for path in paths if str(path))
    return os.environ | {"PYTHONPATH": joined, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}


def counted(name: str) -> dict[str, int]:
    """Return the numbers of a stage's tests by outcome, or nothing where there is no report."""
    file = OUT / f"{name}.xml"
    if not file.exists():
        return {}
    suite = next(ET.parse(file).getroot().iter("testsuite"))
    count = {key: int(suite.get(key, "0")) for key in ("tests", "failures", "errors", "skipped")}
    count["passed"] = count["tests"] - count["failures"] - count["errors"] - count["skipped"]
    return count


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line[:200] for line in reversed(lines) if line), "")


def carried_out(stage: Stage, left: float) -> Result:
    """Run a stage, and return its result. `left` are the seconds that remain of the budget."""
    if stage.reason:
        return Result(stage.name, "left out", told=stage.reason)
    limit, begin = min(stage.limit, left), time.monotonic()
    if limit < 5:
        return Result(stage.name, "out of time", told="the stages before took all there was")
    log = OUT / f"{stage.name}.log"
    for kind in ("xml", "json"):  # files of an earlier run
        (OUT / f"{stage.name}.{kind}").unlink(missing_ok=True)
    with log.open("w") as out:
        process = subprocess.Popen(
            stage.command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end(process)
    seconds = round(time.monotonic() - begin, 1)
    figures = stage.figures()
    if code is None:
        return Result(stage.name, "out of time", seconds, f"more than {limit:.0f} s", figures)
    count = counted(stage.name)
    is_good = code == 0 and (not count or count["passed"] > 0)
    told = ", ".join(f"{number} {key}" for key, number in count.items() if number)
    result = "passed" if is_good else "failed"
    return Result(stage.name, result, seconds, told or last_line(log), figures)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children. Their ranks die with them."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def judged(figure: dict[str, Any]) -> str:
    """Return a row of the table. A missed goal is no failure, as machines are noisy."""
    goal, verdict = figure["goal"], ""
    if goal is not None:
        verdict = "reached" if figure["ratio"] <= goal else "missed"
    limit = "" if goal is None else f"{goal:.2f}"
    return f"| {figure['what']} | {figure['ratio']:.3f} | {limit} | {verdict} |"


def write_summary(about: dict[str, Any], results: list[Result]) -> None:
    found = {"machine": about, "stages": [asdict(result) for result in results]}
    (OUT / "summary.json").write_text(json.dumps(found, indent=1))
    facts = "\n".join(f"- {key}: {value}" for key, value in about.items())
    rows = [f"| {r.name} | {r.result} | {r.seconds:.0f} | {r.told} |" for r in results]
    table = "\n".join(["| stage | result | seconds | |", "| --- | --- | ---: | --- |", *rows])
    if figures := [judged(figure) for result in results for figure in result.figures]:
        head = ["| times' ratio | | goal | |", "| --- | ---: | ---: | --- |"]
        table += "\n\n" + "\n".join([*head, *figures])
    (OUT / "summary.md").write_text(f"# make gpu\n\n{facts}\n\n{table}\n")


def parse_args(names: list[str]) -> list[str]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stages", nargs="*", metavar="stage", help=", ".join(names))
    given: list[str] = parser.parse_args().stages
    if unknown := set(given) - set(names):
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    return given or names


def main() -> None:
    begin = time.monotonic()
    chosen = parse_args([stage.name for stage in stages("")])
    if not machine.is_there("torch"):
        sys.exit(f"make gpu: {PYTHON} has no torch; activate an environment that has one for CUDA")
    about = machine.described()
    if not about["device"]:
        sys.exit(
            f"make gpu: torch {about['torch']} of {PYTHON} finds no CUDA device; activate an "
            "environment whose torch does"
        )
    if missing := machine.tools_missing():
        print(f"make gpu: missing here: {', '.join(missing)}", flush=True)
        about["missing"] = ", ".join(missing)
    OUT.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for stage in stages(str(about["capability"])):
        if stage.name not in chosen:
            continue
        result = carried_out(stage, BUDGET - (time.monotonic() - begin))
        results.append(result)
        write_summary(about, results)
        print(f"{result.name}: {result.result}, {result.seconds:.0f} s. {result.told}", flush=True)
    print((OUT / "summary.md").read_text())
    if any(result.result in ("failed", "out of time") for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
