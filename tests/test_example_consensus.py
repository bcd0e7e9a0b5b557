"""examples/average_consensus.py, started as a user starts it, but shorter."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from programs import run_script

EXAMPLE = Path(__file__).parents[1] / "examples" / "average_consensus.py"


def test_example_reaches_the_mean_though_one_rank_is_slow() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ran = run_script([*torchrun, "--nproc-per-node=4", str(EXAMPLE), "--seconds", "4"], timeout=120)
    assert ran.code == 0, ran.out
    steps = [int(n) for n in re.findall(r"rank \d: (\d+) steps, at most \S+ from", ran.out)]
    assert len(steps) == 4, ran.out
    assert min(steps) < max(steps), ran.out
