"""These functions find the shared memory, temporary files and processes that a test left."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import time
from pathlib import Path

from tests.support import harness
from tests.support.processes import descendants

SET_CHILD_SUBREAPER = 36  # a constant of linux/prctl.h


def adopt_orphans() -> None:
    """Make processes whose parents end children of this process from now on."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1)


def after(before: set[Path], seconds: float) -> tuple[list[Path], set[int]]:
    """Return the files besides `before` that nobody uses, and the processes that nobody keeps.

    Both have so many seconds to go away by themselves.
    """
    end = time.monotonic() + seconds
    while True:
        left = [path for path in files() - before if is_idle(path)]
        running = processes()
        if time.monotonic() > end or not (left or running):
            return left, running
        time.sleep(0.05)


def files() -> set[Path]:
    """Return the files in shared memory, and bluefog's in this process's temporary folder."""
    found = {Path("/dev/shm") / name for name in os.listdir("/dev/shm")}
    return found | {
        p for p in Path(tempfile.gettempdir()).iterdir() if p.name.startswith("bluefog")
    }


def is_idle(path: Path) -> bool:
    """Return whether the file exists and no living process, of another job either, has it open."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return not any(uses(pid, path, status) for pid in filter(str.isdigit, os.listdir("/proc")))


def uses(pid: str, path: Path, status: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        if any(line.endswith(f" {path}") for line in maps):
            return True
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), status):
                    return True
    return False


def processes() -> set[int]:
    """Return the descendants of this process that no living ranks need."""
    kept = {p.pid for ranks in harness.LIVING for p in ranks.procs}
    kept |= {parent.pid for parent in harness.PARENTS}
    found = descendants(os.getpid()) - kept
    return {pid for pid in found if not serves_ranks(pid) and not was_reaped(pid)}


def serves_ranks(pid: int) -> bool:
    """Return whether this is a PMIx server of living ranks.

    It has left its parent, and ends with the last of its ranks.
    """
    return bool(harness.LIVING) and command(pid) == "bluefog-pmixd"


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def was_reaped(pid: int) -> bool:
    """Reap a child that has ended, and return whether it was one.

    Only this process can reap an orphan that it has adopted.
    """
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
