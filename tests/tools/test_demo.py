"""`make demo` trains six times, says what came of it, and goes on when a rank is killed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.examples import EXAMPLES, need_digits
from tests.support.programs import run_script

need_digits()
BFRUN = [sys.executable, "-m", "bluefog_pg.launch.runner.command"]
CELLS = r"(?P<seconds>[\d.]+) s +(?P<sent>-|[\d.]+ MB) +[\d.]+% +(?P<ranks>\d)"
ROW = re.compile(rf"^\[0\] (?P<title>\S.*?) {{2,}}{CELLS}$", re.MULTILINE)
STEPS = 40


@pytest.mark.slow
def test_the_demo_says_what_came_of_each_training(tmp_path: Path) -> None:
    demo = [str(EXAMPLES / "demo.py"), "--out", str(tmp_path), "--steps", str(STEPS)]
    ran = run_script(
        [*BFRUN, "-np", "4", "--keep-going", *demo], timeout=120, env={"OMP_NUM_THREADS": "1"}
    )
    assert ran.code == 0, ran.out
    rows = list(ROW.finditer(ran.out))
    assert [row["ranks"] for row in rows] == ["4", "4", "4", "4", "4", "3"], ran.out
    assert [row["sent"] == "-" for row in rows] == [True] + 5 * [False], ran.out
    assert re.search("rank 3 .*SIGKILL", ran.out), ran.out
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    table = json.loads((tmp_path / "demo.json").read_text())
    assert [row["title"] for row in table] == [row["title"] for row in rows]
    assert {len(row["losses"]) for row in table} == {STEPS}
    # Each step of DDP sends 3/2 of the parameters around a ring of four, and one peer takes them.
    _, ddp, one_peer, *_ = (row["megabytes"] for row in table)
    assert 0.5 < one_peer / ddp < 0.8
