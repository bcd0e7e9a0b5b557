"""The examples, started as a user starts them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.support.programs import run_script

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, *args: str) -> str:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node=4", str(EXAMPLES / example), *args]
    ran = run_script(command, timeout=120)
    assert ran.code == 0, ran.out
    return ran.out


ROW = re.compile(r"^ +(\d+) +([\d.]+)% +(\d+) +([\d,]+|-)$", re.MULTILINE)
