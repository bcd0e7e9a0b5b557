"""These functions show where a process hangs, and find or kill all that descend from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def stacks(pids: Iterable[int]) -> str:
    """Return Python and native stacks from outside, as a hanging process cannot tell them."""
    tools = [
        ["py-spy", "dump", "--pid"],
        ["gdb", "-nx", "-batch", "-ex", "thread apply all bt 16", "-p"],
    ]
    said = []
    for pid in pids:
        for tool in tools:
            path = shutil.which(tool[0], path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
            if path is None:
                continue
            with contextlib.suppress(subprocess.TimeoutExpired):
                got = subprocess.run(
                    [path, *tool[1:], str(pid)],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                said.append(f"--- {tool[0]} of {pid}\n{got.stdout[-6000:]}")
    return "\n".join(said)


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found |= {int(child)} | descendants(int(child))
    return found


def kill_all(pid: int) -> None:
    """Kill a process and all that descend from it."""
    for each in descendants(pid) | {pid}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
