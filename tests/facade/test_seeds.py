"""BlueFog's own first programs give the right output under each launcher."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.environment import ROOT
from tests.support.programs import MPIRUN, TORCHRUN, run_script

SEEDS = ROOT / "examples" / "seeds"
ALL = ("average_consensus", "push_sum", "distributed_optimizer", "mutex", "neighbor_optimizer")
# The ranks' interpreters import torch once, for all programs.
DRIVER = """
import runpy, sys
import bluefog.torch as bf
# The ranks share a pipe. Each line is one write, also where PYTHONUNBUFFERED is set.
sys.stdout.reconfigure(line_buffering=True, write_through=False)
for path in sys.argv[1:]:
    print("program", path)
    runpy.run_path(path)
    bf.barrier()
    bf.shutdown()
"""
LAUNCHERS = {
    "torchrun": [*TORCHRUN, "--standalone", "--nproc-per-node", "4"],
    "mpirun": [*MPIRUN, "-np", "4", sys.executable],
    "none": [sys.executable],
}


def said(out: str, what: str) -> dict[int, list[float]]:
    """Return the numbers that each rank has printed after `what`."""
    numbers = r"-?\d+\.?\d*(?:e-?\d+)?"
    told: dict[int, list[float]] = {}
    for rank, a, b in re.findall(rf"(\d): {what} (?:tensor\(\[*([^\]]*)|({numbers}))", out):
        told.setdefault(int(rank), []).extend(float(n) for n in re.findall(numbers, a or b))
    return told


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_seeds(launcher: str, tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    world = 1 if launcher == "none" else 4
    # One machine of one rank has no dynamic topology of machines.
    names = ALL if world > 1 else ALL[:-1]
    paths = [str(SEEDS / f"{name}.py") for name in names]
    command = [*LAUNCHERS[launcher], "-m", "bluefog_pg", "run_as_bluefog", str(driver), *paths]
    ran = run_script(command, timeout=120)
    assert ran.code == 0, ran.out
    everyone, mean = list(range(world)), (world - 1) / 2
    averages = said(ran.out, "Average value of all ranks is")
    assert sorted(averages) == everyone, ran.out
    for each in averages.values():  # The consensus and push-sum print one each.
        assert each == pytest.approx([mean, mean], abs=1e-3)
    weights = said(ran.out, "The weight is")
    assert sorted(weights) == everyone, ran.out
    for weight in weights.values():  # Each optimizer prints one.
        assert weight == pytest.approx([1.0, -2.0, 3.0] * (len(names) - 3), abs=0.05)
    assert sorted(said(ran.out, "The tensor is")) == everyone, ran.out


def test_run_as_bluefog_refuses_where_bluefog_is(tmp_path: Path) -> None:
    package = tmp_path / "bluefog"
    package.mkdir()
    (package / "__init__.py").touch()
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(3)")
    command = [sys.executable, "-m", "bluefog_pg", "run_as_bluefog", str(script)]
    ran = run_script(command, env={"PYTHONPATH": str(tmp_path)})
    assert ran.code == 1
    assert "BlueFog itself is installed" in ran.out


@pytest.mark.slow
def test_run_as_bluefog_passes_arguments_on(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 7")
    child = "import bluefog.torch as bf, bluefog_pg.torch; assert bf is bluefog_pg.torch"
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, sys, beside\n"
        "from bluefog.common.util import env\n"
        "from bluefog.torch import mpi_ops\n"
        "import bluefog.torch.optimizers, bluefog_pg.torch\n"
        "assert bluefog.torch is bluefog_pg.torch and bluefog.__version__\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['-a', '--b=c']\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
        "raise SystemExit(beside.VALUE)\n"
    )
    command = [sys.executable, "-m", "bluefog_pg", "run_as_bluefog"]
    for what in ([str(script)], ["-m", "script"]):
        ran = run_script([*command, *what, "-a", "--b=c"], cwd=tmp_path)
        assert ran.code == 7, ran.out
