"""This module says which process runs the cluster of a profile of IPython."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import IO

_TO_STOP = 30  # seconds


class Claim:
    """A Claim is a locked file with the number of the process that holds it.

    The lock goes with the process, so a number that was left behind means nothing.
    """

    def __init__(self, file: Path) -> None:
        """Take the claim.

        Raises:
            ValueError: another process has it.
        """
        self._opened = file.open("a+")
        if not _lock(self._opened):
            raise ValueError(
                f"process {_holder(self._opened)} runs engines in this profile already; "
                "end them by `ibfrun stop`"
            )
        self._opened.truncate(0)
        self._opened.write(f"{os.getpid()}\n")
        self._opened.flush()


def end_holder(file: Path) -> int | None:
    """End the process that has the claim, and return its number. None: nobody has it.

    Raises:
        ValueError: it does not end in time.
    """
    if not file.exists():
        return None
    with file.open("r+") as opened:
        pid = None
        end = time.monotonic() + _TO_STOP
        while not _lock(opened):
            # A process writes its number after it has the lock.
            if pid is None and (pid := _holder(opened)) is not None:
                os.kill(pid, signal.SIGTERM)
            if time.monotonic() > end:
                raise ValueError(f"process {pid} has not ended in {_TO_STOP} s: kill -9 {pid}")
            time.sleep(0.05)
        return pid


def _lock(opened: IO[str]) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(opened: IO[str]) -> int | None:
    opened.seek(0)
    return int(opened.read() or 0) or None
