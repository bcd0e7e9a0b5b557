"""The examples of optimizers run, shorter than a user runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.examples import EXAMPLES, OF_DIGITS, ROW, need_digits, run

METHODS = ("exact_diffusion", "gradient_tracking", "push_diging")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_logistic_regression(method: str) -> None:
    args = ("--method", method, "--steps", "400", "--require-error", "1e-10")
    out = run("decentralized_optimization.py", *args)
    errors = [float(error) for error in re.findall(r"= (\S+)$", out, re.MULTILINE)]
    assert errors[-1] < 1e-10 < errors[0], out


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ExactDiffusion", "GradientTracking"])
def test_resource_allocation(method: str) -> None:
    out = run("resource_allocation.py", "--method", method, "--require-error", "1e-10")
    assert out.count("off by") == 4, out


@pytest.mark.thorough
def test_language_model() -> None:
    out = run("language_model.py", "--steps", "50", "--require-loss", "3.2")
    assert re.search(r"50: mean loss \S+, \S+ apart, [\d,]+ B a step", out), out


@pytest.mark.slow
@pytest.mark.parametrize("communication", ["allreduce", "neighbor_allreduce"])
def test_local_steps(communication: str) -> None:
    need_digits()
    args = ("--communication", communication, "--epochs", "5", "--require-accuracy", "0.6")
    out = run("local_sgd.py", *args, modules=OF_DIGITS)
    assert len(re.findall(r"rank \d: \S+% after 5 exchanges", out)) == 4, out


MODES = {
    "hierarchical_neighbor_allreduce": (),
    "allreduce": ("--order", "atc"),
    "gradient_allreduce": (),
    "win_put": ("--topology", "ring"),
    "win_get": (),
    "push_sum": (),
    "empty": (),
}


@pytest.mark.thorough
def test_each_communication_of_the_digits(tmp_path: Path) -> None:
    """Any of them keeps ranks nearer to each other than none does, and all ranks learn."""
    need_digits()
    distances = {}
    for mode, args in MODES.items():
        args = ("--mode", mode, "--epochs", "2", "--out", str(tmp_path), *args)
        args = (*args, "--require-accuracy", "0.6")
        out = run("train_digits.py", *args, ranks=2, modules=OF_DIGITS)
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


def test_every_example_takes_a_device() -> None:
    texts = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    del texts["demo.py"]  # It compares with gloo, on the CPU.
    programs = {name: text for name, text in texts.items() if "ArgumentParser(" in text}
    assert len(programs) == 7
    assert all('--device", type=own_device' in text for text in programs.values())


def test_no_example_is_long() -> None:
    assert all(len(path.read_text().splitlines()) <= 120 for path in EXAMPLES.glob("*.py"))
