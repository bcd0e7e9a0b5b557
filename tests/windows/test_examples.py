"""The examples of windows, started as a user starts them, but shorter."""

from __future__ import annotations

import re

import pytest

from tests.support.examples import run


def test_consensus_reaches_the_mean_though_one_rank_is_slow() -> None:
    out = run("average_consensus.py", "--seconds", "4")
    steps = [int(n) for n in re.findall(r"rank \d: (\d+) steps, at most \S+ from", out)]
    assert len(steps) == 4, out
    assert min(steps) < max(steps), out


def test_training_goes_on_beside_a_slow_rank() -> None:
    for needed in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(needed)
    out = run("async_training.py", "--seconds", "6", "--require-accuracy", "0.5")
    rates = sorted(float(n) for n in re.findall(r"rank \d: (\S+) steps/s", out))
    assert len(rates) == 4, out
    assert rates[1] > 2 * rates[0], out
