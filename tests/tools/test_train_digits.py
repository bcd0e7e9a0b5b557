"""The example train_digits.py works, shorter, and once started as a user starts it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.support.examples import EXAMPLES, OF_DIGITS, ROW, need_digits
from tests.support.programs import TORCHRUN, Ran, run_on_ranks, run_script

need_digits()
EXAMPLE = EXAMPLES / "train_digits.py"


def by_torchrun(*args: str) -> Ran:
    torchrun = [*TORCHRUN, "--standalone", "--nproc-per-node=2"]
    return run_script([*torchrun, str(EXAMPLE), *args], timeout=120)


def on_ranks(*args: str, ranks: int = 2) -> Ran:
    return run_on_ranks(EXAMPLE, *args, ranks=ranks, timeout=120, modules=OF_DIGITS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "train"), [("ddp", on_ranks), ("neighbor_allreduce", by_torchrun)],
    ids=["ddp", "neighbor_allreduce"],
)  # fmt: skip
def test_example_prints_a_row_per_rank_and_draws_the_plot(
    tmp_path: Path, mode: str, train: Callable[..., Ran]
) -> None:
    args = ("--mode", mode, "--out", str(tmp_path), "--epochs", "6", "--require-accuracy", "0.5")
    ran = train(*args)
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
    args = ("--mode", "ddp", "--out", str(tmp_path), "--backend", "gloo")
    ran = on_ranks(*args, "--epochs", "1", "--require-accuracy", "1.01", ranks=1)
    assert ran.code != 0, ran.out
    assert "is below 101.00%" in ran.out, ran.out
    assert [sent for *_, sent in ROW.findall(ran.out)] == ["-"], ran.out  # gloo counts no bytes.


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_example_says_that_there_is_no_such_device() -> None:
    ran = on_ranks("--device", "cuda", ranks=1)
    assert ran.code == 2, ran.out
    assert ran.out.startswith("--device cuda: torch finds none here"), ran.out
