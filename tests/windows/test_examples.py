"""The examples of windows run, shorter than a user runs them."""

from __future__ import annotations

import re

import pytest

from tests.support.examples import OF_DIGITS, need_digits, run


@pytest.mark.alone
def test_consensus_reaches_the_mean_though_one_rank_is_slow() -> None:
    out = run("average_consensus.py", "--seconds", "4")
    steps = [int(n) for n in re.findall(r"rank \d: (\d+) steps, at most \S+ from", out)]
    assert len(steps) == 4, out
    assert min(steps) < max(steps), out


@pytest.mark.alone
def test_training_goes_on_beside_a_slow_rank() -> None:
    need_digits()
    args = ("--seconds", "6", "--require-accuracy", "0.5")
    out = run("async_training.py", *args, modules=OF_DIGITS)
    rates = sorted(float(n) for n in re.findall(r"rank \d: (\S+) steps/s", out))
    assert len(rates) == 4, out
    assert rates[1] > 2 * rates[0], out
