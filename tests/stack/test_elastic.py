"""torchrun restarts a job that lost a rank, and the training goes on as if it had not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.programs import TORCHRUN, run_script

SCRIPT = Path(__file__).parents[1] / "support" / "scripts" / "elastic.py"
LINE = re.compile(
    r"round (\d) rank (\d) began at (\d+) same (\w+) loss ([\d.e-]+) operations (\d+)"
)


@pytest.mark.thorough
def test_killed_and_restarted_ends_with_the_same_loss(tmp_path: Path) -> None:
    """Rank 1 of 3 dies by SIGKILL in step 7, where round 1 begins, with losses as if it had not."""
    argv = [*TORCHRUN, "--standalone", "--nproc-per-node=3", "--max-restarts=2", str(SCRIPT)]
    argv.append(str(tmp_path / "checkpoint"))
    ran = run_script(argv, timeout=150)
    assert ran.code == 0, ran.out
    told = LINE.findall(ran.out)
    assert sorted(rank for _, rank, *_ in told) == ["0", "1", "2"], ran.out
    for attempt, _, first, same, _, operations in told:
        assert (attempt, first, same) == ("1", "7", "True"), ran.out
        assert int(operations) > 0
    assert "rank 1 is killed" in ran.out, ran.out
