"""The example that `make demo` runs, started as a user starts it, but shorter."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from tests.support.examples import ROW
from tests.support.programs import Ran, run_script

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"


def train(out: Path, mode: str, *args: str, ranks: int = 2) -> Ran:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return run_script(
        [
            *torchrun,
            f"--nproc-per-node={ranks}",
            str(EXAMPLE),
            "--mode",
            mode,
            "--out",
            str(out),
            *args,
        ],
        timeout=120,
    )


@pytest.mark.parametrize("mode", ["ddp", "neighbor_allreduce"])
def test_example_prints_a_row_per_rank_and_draws_the_plot(tmp_path: Path, mode: str) -> None:
    ran = train(tmp_path, mode, "--epochs", "6", "--require-accuracy", "0.5")
    assert ran.code == 0, ran.out
    rows = ROW.findall(ran.out)
    assert [int(rank) for rank, *_ in rows] == [0, 1], ran.out
    for _, accuracy, speed, sent in rows:
        assert float(accuracy) >= 50
        assert int(speed) > 0
        assert int(sent.replace(",", "")) > 0
    assert "100%" in ran.out, "no progress bar"
    assert re.search(r"^consensus distance \d", ran.out, re.MULTILINE), ran.out
    assert (tmp_path / f"train_digits_{mode}.png").read_bytes().startswith(b"\x89PNG")


def test_example_fails_below_the_required_accuracy(tmp_path: Path) -> None:
    args = ("--backend", "gloo", "--epochs", "1", "--require-accuracy", "1.01")
    ran = train(tmp_path, "ddp", *args, ranks=1)
    assert ran.code != 0, ran.out
    assert "is below 101.00%" in ran.out, ran.out
    assert [sent for *_, sent in ROW.findall(ran.out)] == ["-"], ran.out  # gloo counts no bytes


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_example_says_that_there_is_no_such_device() -> None:
    ran = run_script([sys.executable, str(EXAMPLE), "--device", "cuda"])
    assert ran.code == 2, ran.out
    assert ran.out.startswith("--device cuda: torch finds none here"), ran.out
