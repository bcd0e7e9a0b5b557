"""This module ends what the engines of a notebook have left running."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Container
from pathlib import Path

_SET_CHILD_SUBREAPER = 36  # a constant of linux/prctl.h


def adopt() -> None:
    """Make processes whose parents end children of this process from now on.

    Each engine has a nanny, which outlives it for a while, and cells may start programs.
    """
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def end(keep: Container[int]) -> None:
    """Kill all children of this process but those to keep, and their children in turn."""
    while children := [pid for pid in _children() if pid not in keep]:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    return [
        int(pid)
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]
