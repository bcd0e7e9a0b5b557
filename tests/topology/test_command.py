"""`python -m bluefog_pg topology` says how topologies average, and draws a picture."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from bluefog_pg import __main__, topology_util
from tests.support.programs import run_script

Capture = pytest.CaptureFixture[str]


def topology(monkeypatch: pytest.MonkeyPatch, capsys: Capture, *args: str) -> dict[str, str]:
    monkeypatch.setattr(sys, "argv", ["bluefog_pg", "topology", *args])
    __main__.main()
    return {line[:24].strip(): line[24:] for line in capsys.readouterr().out.splitlines()}


@pytest.mark.slow
def test_as_a_program(tmp_path: Path) -> None:
    picture = tmp_path / "exp2.png"
    command = [sys.executable, "-m", "bluefog_pg", "topology", "exp2", "16"]
    ran = run_script([*command, "--steps", "9", "--plot", str(picture)])
    assert ran.code == 0
    told = {line[:24].strip(): line[24:] for line in ran.out.splitlines()}
    assert told.pop("after 9 steps").endswith(" of the distance from the mean is left")
    assert told == {
        "ranks": "16",
        "in-degree": "4",
        "out-degree": "4",
        "edges per step": "64",
        "doubly stochastic": "yes",
        "spectral gap": "0.4",
        "mixing time": "14 steps to 0.001",
    }
    assert picture.read_bytes().startswith(b"\x89PNG")


NAMES = "exp2 exp exp3 symexp symexp2 ring mesh torus star full er debruijn3 hypercube".split()


@pytest.mark.parametrize("name", [*NAMES, "base", "base2", "base3", "onepeer"])
def test_every_name(name: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    told = topology(monkeypatch, capsys, name, "8")
    assert told["doubly stochastic"] == "yes"
    assert told["ranks"] == "8"
    assert topology(monkeypatch, capsys, name, "1")["mixing time"] == "0 steps, then exact"


def test_rounds(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    told = topology(monkeypatch, capsys, "base2", "6")
    assert told["steps of a round"] == "4"
    assert told["in-degree"] == "0 to 1"
    assert told["mixing time"] == "4 steps, then exact"
    assert topology(monkeypatch, capsys, "debruijn", "8")["mixing time"] == "3 steps, then exact"
    assert topology(monkeypatch, capsys, "star", "8")["out-degree"] == "1 to 7"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["chord", "8"], "unknown topology 'chord'; NAME must be one of ring, mesh, torus, star"),
        (["base0", "8"], "base must be an integer of at least 2, got 0"),
        (["hypercube", "6"], "power of two, got 6"),
        (["er", "0"], "size must be at least 1, got 0"),
        (["ring", "8", "--steps", "-1"], "steps must not be negative"),
        (["ring", "8", "--steps", "2000000"], "steps must be at most 1000000, got 2000000"),
        (["ring", "many"], "invalid int value: 'many'"),
        (["ring", "200000"], "SIZE must be at most 1024 to be described, got 200000"),
    ],
)
def test_refused(
    args: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with pytest.raises(SystemExit) as left:
        topology(monkeypatch, capsys, *args)
    assert left.value.code == 2
    assert text in capsys.readouterr().err


def test_no_place_for_the_picture(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="/nowhere"):
        topology(monkeypatch, capsys, "ring", "4", "--plot", "/nowhere/ring.png")


def test_a_folder_is_no_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    with pytest.raises(SystemExit, match=f"path must be a file to write, and {folder} is a dir"):
        topology(monkeypatch, capsys, "ring", "4", "--plot", str(folder))
    assert list(tmp_path.iterdir()) == [folder]
    assert capsys.readouterr().out == ""


PICTURES = {
    "one.svg": topology_util.RingGraph(1),
    "dense.pdf": topology_util.FullyConnectedGraph(18),
    "round.png": topology_util.BaseKGraphs(11),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(name: str, tmp_path: Path) -> None:
    topology_util.plot(PICTURES[name], tmp_path / name, title="a title")
    assert (tmp_path / name).stat().st_size > 5000


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"pip install 'bluefog_pg\[examples\]'"):
        topology_util.plot(topology_util.RingGraph(3), tmp_path / "x.png")
