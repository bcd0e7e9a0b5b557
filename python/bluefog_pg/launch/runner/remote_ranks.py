"""This module runs the ranks of another host, by an agent that ssh starts there."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from typing import IO, cast

from bluefog_pg.launch.runner.agent import MARK
from bluefog_pg.launch.runner.share import Exit, Share

_TO_STOP = 15  # seconds until an agent that does not end is given up


class RemoteRanks:
    """A RemoteRanks has another host's ranks of a job.

    The host must have the same Python and the same folder. The ranks' settings go to the agent's
    input, because other users of the host can read what stands on a command line.
    """

    def __init__(self, host: str, port: int | None, share: Share) -> None:
        self._host = host
        self._start = time.monotonic()
        self._running = set(range(share.first, share.first + share.count))
        self._exits: queue.SimpleQueue[Exit] = queue.SimpleQueue()
        paths = f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
        agent = ["env", paths, sys.executable, "-m", "bluefog_pg.launch.runner.agent"]
        at = ["-p", str(port)] if port else []
        # Without BatchMode, ssh might ask for a password that nobody can type.
        command = ["ssh", "-T", "-o", "BatchMode=yes", *at, "--", host, shlex.join(agent)]
        pipe = subprocess.PIPE
        self._ssh = subprocess.Popen(  # noqa: S603 The user's own command is to run there.
            command, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        with contextlib.suppress(BrokenPipeError):  # ssh has ended then, which poll() tells.
            self._input.write(f"{share.encode()}\n")
            self._input.flush()

    @property
    def _input(self) -> IO[str]:
        return cast("IO[str]", self._ssh.stdin)

    def running(self) -> list[int]:
        """Return the ranks that have not ended, as far as is known."""
        return sorted(self._running)

    def poll(self) -> list[Exit]:
        """Return how ranks have ended since the last call.

        Raises:
            ConnectionError: ssh has ended before the ranks.
        """
        has_ended = self._ssh.poll() is not None and not self._reader.is_alive()
        ended = []
        while not self._exits.empty():
            ended.append(self._exits.get())
            self._running.discard(ended[-1].rank)
        if has_ended and self._running and not ended:
            raise ConnectionError(
                f"ssh {self._host} ended with exit code {self._ssh.returncode} after "
                f"{time.monotonic() - self._start:.0f} s, before ranks {self.running()} had ended"
            )
        return ended

    def stop(self, _by: signal.Signals = signal.SIGTERM) -> None:
        """End the ranks. The agent does that when its input ends."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()
        try:
            self._ssh.wait(_TO_STOP)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()
        self._reader.join(_TO_STOP)
        self._running = set()

    def _read(self) -> None:
        for line in cast("IO[str]", self._ssh.stdout):
            if line.startswith(MARK):
                self._exits.put(Exit.decode(line.removeprefix(MARK)))
            else:
                sys.stdout.write(line)
