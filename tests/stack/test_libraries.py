"""Libraries that people train with run on bluefog: gloo's scripts with another backend's name."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.programs import TORCHRUN, Ran, run_on_ranks, run_script

SCRIPTS = Path(__file__).parents[1] / "support" / "scripts"
LINE = re.compile(
    r"rank (\d) of 2 backend (\w+) ddp (\w+) losses (\[.*\]) operations (\d+)", re.MULTILINE
)


@dataclass(frozen=True)
class Epochs:
    backend: str
    losses: list[float]
    operations: int


def epochs(ran: Ran, backend: str) -> list[Epochs]:
    """Return what both ranks said."""
    # gloo's threads may abort a process that has done its work.
    assert ran.code == 0 or backend == "gloo", ran.out
    told = {rank: (name, ddp, *rest) for rank, name, ddp, *rest in LINE.findall(ran.out)}
    assert sorted(told) == ["0", "1"], ran.out
    assert all(ddp == "True" for _, ddp, *_ in told.values()), ran.out
    return [Epochs(name, json.loads(losses), int(ops)) for name, _, losses, ops in told.values()]


def compare(script: str, starter: list[str], library: str, folder: Path) -> None:
    """Train on bluefog as users start it, and on gloo on ranks that have imported the library."""
    pytest.importorskip(library)
    path = SCRIPTS / script
    ours, gloo = ((backend, str(folder / backend)) for backend in ("bluefog", "gloo"))
    started = run_script([*starter, str(path), *ours], timeout=120)
    reference = run_on_ranks(path, *gloo, ranks=2, timeout=120, modules=(library,))
    pairs = zip(epochs(started, "bluefog"), epochs(reference, "gloo"), strict=True)
    for got, want in pairs:
        assert (got.backend, want.backend) == ("bluefog", "gloo")
        assert got.losses == pytest.approx(want.losses, rel=1e-5)
        assert got.losses[-1] < 0.5 * got.losses[0], "learned nothing"
        assert got.operations > 50


@pytest.mark.thorough
def test_lightning(tmp_path: Path) -> None:
    """Lightning fits, validates with a metric over both ranks, and saves; every loss is gloo's."""
    compare("train_lightning.py", [sys.executable], "lightning", tmp_path)


@pytest.mark.thorough
def test_accelerate(tmp_path: Path) -> None:
    """Accelerate accumulates, clips, gathers metrics, saves and loads; every loss is gloo's."""
    torchrun = [*TORCHRUN, "--standalone", "--nproc-per-node=2"]
    compare("train_accelerate.py", torchrun, "accelerate", tmp_path)
