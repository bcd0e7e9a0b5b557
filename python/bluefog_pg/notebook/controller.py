"""This module runs ipyparallel's controller, by which a notebook reaches its engines."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from bluefog_pg.notebook.needed import ipyparallel

LOOPBACK = "127.0.0.1"
_TO_START = 60  # seconds
_TO_STOP = 5  # seconds until a controller that does not stop is killed


class Controller:
    """A Controller is a process that listens on the loopback interface alone.

    The folder is a profile of IPython. Only its owner may read the files there, and who connects
    must know their key.
    """

    def __init__(self, folder: Path, is_quiet: bool) -> None:
        ipyparallel()
        self._files = [
            folder / "security" / f"ipcontroller-{side}.json" for side in ("client", "engine")
        ]
        # A controller that was killed leaves its files, and others would wait for it in vain.
        for file in self._files:
            file.unlink(missing_ok=True)
        # Without threads each scheduler is a process of its own, which Python has to start.
        options = {
            "profile-dir": folder, "ip": LOOPBACK, "location": LOOPBACK,
            "IPController.use_threads": True,
        }  # fmt: skip
        self._process = subprocess.Popen(  # noqa: S603 No part of it is a user's text.
            [sys.executable, "-m", "ipyparallel.controller", *as_flags(options)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if is_quiet else None,
            start_new_session=True,  # Ctrl-C in a terminal must end it after the engines.
        )

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_TO_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for file in self._files:
            file.unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the controller's exit code, or None while it runs."""
        return self._process.poll()

    def wait(self) -> Path:
        """Wait until it listens, and return the file that a client connects by.

        Raises:
            ValueError: it has ended, or does not start in time.
        """
        end = time.monotonic() + _TO_START
        while not all(_is_whole(file) for file in self._files):
            if (code := self.exit_code()) is not None:
                raise ValueError(f"ipyparallel's controller ended with exit code {code}")
            if time.monotonic() > end:
                raise ValueError(f"ipyparallel's controller has not started in {_TO_START} s")
            time.sleep(0.05)
        return self._files[0]


def as_flags(options: dict[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _is_whole(file: Path) -> bool:
    """Return whether the controller has written the whole file."""
    try:
        json.loads(file.read_text())
    except (OSError, ValueError):
        return False
    return True
