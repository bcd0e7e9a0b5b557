"""This module runs a controller and its engines, each of which is a rank.

It is a program, too, which a notebook starts: `python -m bluefog_pg.notebook.cluster SIZE`. That
ends when its input does, so it does not outlive the notebook. Each line that begins with MARK is
for the notebook: one of them is READY with the folder, and others say what has gone wrong. All
other lines are the engines' own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from bluefog_pg.launch.runner.arguments import environ_of_ranks
from bluefog_pg.launch.runner.hosts import Host
from bluefog_pg.launch.runner.job import Job
from bluefog_pg.notebook import orphans
from bluefog_pg.notebook.controller import Controller, as_flags
from bluefog_pg.notebook.needed import ipyparallel

MARK = "\x1e"
READY = "ready: "
_TO_END_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TO_REGISTER = 60  # seconds


class Cluster:
    """A Cluster has a controller and `size` engines, which are the ranks of one job."""

    def __init__(
        self,
        size: int,
        folder: Path,
        say: Callable[[str], None],
        on_ready: Callable[[], None],
        is_quiet: bool = False,
    ) -> None:
        self._size, self._folder, self._is_quiet = size, folder, is_quiet
        self._say, self._on_ready = say, on_ready
        self._is_ready = threading.Event()
        self._is_over = threading.Event()

    def run(self) -> int:
        """Run until a signal comes or all engines have ended, and return the exit code.

        Nothing is left when it returns. The main thread must call it.

        Raises:
            ValueError: the controller or an engine has ended before all were ready.
        """
        for number in _TO_END_BY:
            signal.signal(number, _end)
        orphans.adopt()
        os.environ.pop("JPY_PARENT_PID", None)  # An engine would end with that process.
        try:
            with contextlib.closing(Controller(self._folder, self._is_quiet)) as controller:
                try:
                    return self._run_engines(controller)
                finally:
                    self._is_over.set()
                    for number in _TO_END_BY:
                        signal.signal(number, signal.SIG_IGN)
                    orphans.end(keep=(controller.pid,))
        finally:
            orphans.end(keep=())

    def _run_engines(self, controller: Controller) -> int:
        file = controller.wait()
        options = {"profile-dir": self._folder, "timeout": _TO_REGISTER}
        command = [sys.executable, "-m", "bluefog_pg.notebook.engine", *as_flags(options)]
        job = Job(
            command, str(Path.cwd()), environ_of_ranks(os.environ, self._size), self._size,
            [Host("localhost", self._size)], interface=None, ssh_port=None, keeps_going=True,
            say=self._hear,
        )  # fmt: skip
        threading.Thread(target=self._watch, args=(controller, file), daemon=True).start()
        return job.run()

    def _hear(self, text: str) -> None:
        """Pass on what the job says, and end the job where it says that before all are ready."""
        if self._is_ready.is_set():
            self._say(text)
        else:
            raise ValueError(text)

    def _watch(self, controller: Controller, file: Path) -> None:
        """Say when all engines are ready, and end the job when the controller has ended."""
        self._await_engines(file)
        while not self._is_over.wait(0.5):
            if (code := controller.exit_code()) is not None:
                self._say(f"ipyparallel's controller ended with exit code {code}, so no cell runs")
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _await_engines(self, file: Path) -> None:
        with ipyparallel().Client(str(file)) as client:
            while len(client.ids) < self._size:
                if self._is_over.is_set():
                    return
                time.sleep(0.05)
        self._is_ready.set()
        self._on_ready()


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _follow_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    (size,) = sys.argv[1:]
    threading.Thread(target=_follow_input, daemon=True).start()
    try:
        # The notebook could not remove the folder if it was killed.
        with tempfile.TemporaryDirectory(prefix="bluefog-notebook-") as folder:
            cluster = Cluster(int(size), Path(folder), _say, lambda: _say(READY + folder))
            raise SystemExit(cluster.run())
    except (OSError, ValueError, ImportError) as error:
        _say(str(error))
        raise SystemExit(1) from error


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # The notebook may have been killed.
        sys.stdout.write(f"{MARK}{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
