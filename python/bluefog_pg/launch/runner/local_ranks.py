"""This module runs a host's ranks as processes of torch's elastic multiprocessing."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from bluefog_pg.launch.runner.share import Exit, Share
from bluefog_pg.launch.runner.whole_lines import WholeLines

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext

_TO_STOP = 5  # seconds until a rank that does not stop is killed


class LocalRanks:
    """A LocalRanks has one host's ranks of a job. Each line of their output begins with the rank.

    Each rank has a context of torch's own, because one with several processes ends all of them as
    soon as one has failed.
    """

    def __init__(self, share: Share) -> None:
        from torch.distributed.elastic.multiprocessing import (
            DefaultLogsSpecs,
            Std,
            start_processes,
        )

        # Torch logs what is said here anyway.
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
        self._logs = tempfile.TemporaryDirectory(prefix="bfrun-", ignore_cleanup_errors=True)
        self._start = time.monotonic()
        self._running: dict[int, PContext] = {}
        self._lines: dict[int, tuple[WholeLines, WholeLines]] = {}  # of stdout and stderr
        os.chdir(share.folder)
        program, *arguments = share.command
        try:
            for local_rank in range(share.count):
                rank = share.first + local_rank
                prefix = f"[{rank}] "
                out, err = WholeLines(sys.stdout, prefix), WholeLines(sys.stderr, prefix)
                self._lines[rank] = out, err
                # Torch takes the streams that are set when it starts a process.
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    # Here, 0 is the number of the only process of the context.
                    self._running[rank] = start_processes(
                        name="rank",
                        entrypoint=program,
                        args={0: tuple(arguments)},
                        envs={0: share.environ_of(local_rank)},
                        logs_specs=DefaultLogsSpecs(self._logs.name, tee=Std.ALL),
                        log_line_prefixes={0: prefix},
                    )
        except OSError as error:
            self.stop(signal.SIGKILL)
            raise ValueError(f"{program!r} cannot be started: {error.strerror}") from error

    def running(self) -> list[int]:
        """Return the ranks that have not ended."""
        return list(self._running)

    def poll(self) -> list[Exit]:
        """Return how ranks have ended since the last call."""
        ended = []
        for rank, context in list(self._running.items()):
            if (result := context.wait(0)) is not None:
                failure = result.failures.get(0)
                pid, code = context.pids()[0], failure.exitcode if failure else 0
                ended.append(Exit(rank, pid, code, time.monotonic() - self._start))
                context.close()  # after all that the rank has written is shown
                self._finish_lines(rank)
                del self._running[rank]
        return ended

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End the ranks and what they have started. Kill those that do not stop in time."""
        for context in self._running.values():
            # A rank's processes are a group of their own, which ends when the last of them does.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(context.pids()[0], by)
        end = time.monotonic() + _TO_STOP
        for rank, context in self._running.items():
            context.close(by, timeout=max(1, round(end - time.monotonic())))
            self._finish_lines(rank)
        self._running = {}
        self._logs.cleanup()

    def _finish_lines(self, rank: int) -> None:
        for lines in self._lines[rank]:
            lines.finish()
