"""Distributed optimizers where several things meet: types, groups, turns, and parts of others'."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
from pathlib import Path

import pytest

from tests.support import harness
from tests.support.examples import OF_DIGITS, ROW, need_digits

pytestmark = harness.only_bluefog

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"


MODES = {
    "hierarchical_neighbor_allreduce": (),
    "allreduce": ("--order", "atc"),
    "gradient_allreduce": (),
    "win_put": ("--topology", "ring"),
    "win_get": (),
    "push_sum": (),
    "empty": (),
}


def by_example(rank: int, _world: int, out: str, ports: list[int]) -> dict[str, str]:
    """What the example prints of each communication."""
    sys.path.insert(0, str(EXAMPLE.parent))
    told = {}
    for (mode, args), port in zip(MODES.items(), ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        sys.argv = [str(EXAMPLE), "--mode", mode, "--epochs", "2", "--out", out, *args]
        sys.argv += ["--require-accuracy", "0.6"]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            runpy.run_path(str(EXAMPLE), run_name="__main__")
        told[mode] = printed.getvalue()
    return told


@pytest.mark.slow
def test_each_communication_of_the_example(tmp_path: Path) -> None:
    """With any, ranks stay nearer to each other than with none, and all learn."""
    need_digits()
    with harness.Ranks(2, modules=OF_DIGITS) as ranks:
        ranks.start(by_example, str(tmp_path), [harness.free_port() for _ in MODES])
        told = ranks.values()[0]
    distances = {}
    for mode, out in told.items():
        sent = [count.replace(",", "") for *_, count in ROW.findall(out)]
        assert len(sent) == 2, out
        if mode.startswith("win"):
            assert sent == ["-", "-"], out
        else:
            assert all((int(count) < 10_000) == (mode == "empty") for count in sent), out
        assert (tmp_path / f"train_digits_{mode}.png").exists(), out
        distances[mode] = float(out.split("consensus distance ")[1].split()[0])
    apart = distances.pop("empty")
    assert distances.pop("gradient_allreduce") == 0
    assert max(distances.values()) < apart / 2, distances
