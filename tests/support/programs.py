"""Whole programs under a deadline: what users type, rather than functions shipped to ranks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.harness import SLOW, Hang, descendants, environment, stacks


@dataclass
class Ran:
    code: int
    out: str
    seconds: float


def start_script(
    argv: list[str], *, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv, env=environment(env), cwd=cwd, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def finish_script(proc: subprocess.Popen[str], timeout: float = 60) -> Ran:
    began = time.monotonic()
    try:
        out, _ = proc.communicate(timeout=timeout * SLOW)
    except subprocess.TimeoutExpired:
        seen = stacks(descendants(proc.pid) | {proc.pid})
        for pid in descendants(proc.pid) | {proc.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        out, _ = proc.communicate()
        raise Hang(f"{proc.args!r} ran past {timeout} s\n{out[-6000:]}\n{seen}") from None
    return Ran(proc.returncode, out, time.monotonic() - began)


def run_script(
    argv: list[str],
    *,
    timeout: float = 60,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> Ran:
    return finish_script(start_script(argv, env=env, cwd=cwd), timeout)
