"""This module runs a function on ranks that are forks of this process, under a deadline.

The forks need not import torch, which takes longest. This process must not have used an
accelerator, because its forks could not use it then.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_HELD = (signal.SIGINT, signal.SIGTERM)
_SET_PARENT_DEATH_SIGNAL = 1  # a constant of linux/prctl.h


class RankError(Exception):
    """A RankError quotes the last line of the rank that failed first."""


@dataclass(frozen=True)
class Rank:
    """A Rank is what a forked rank knows. All ranks share its folder, which they leave behind."""

    number: int
    size: int
    folder: Path
    line: Connection

    def join(self, backend: str, timeout: timedelta) -> None:
        """Make the default process group of all ranks."""
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group(
            backend,
            init_method=f"file://{self.folder}/store",
            rank=self.number,
            world_size=self.size,
            timeout=timeout,
        )

    def tell(self, what: Any) -> None:
        """Give the process that has forked the ranks what `show` is called with there."""
        self.line.send(what)


def run(
    body: Callable[[Rank], None],
    size: int,
    limit: float,
    environ: Mapping[str, str],
    show: Callable[[Any], None] = lambda _: None,
) -> None:
    """Call the body on `size` ranks, and return when all have ended. No process is left.

    Args:
        body: what a rank does.
        size: the number of ranks.
        limit: the seconds that they may take.
        environ: variables that are set in the ranks.
        show: is called here with what ranks tell.

    Raises:
        RankError: a rank has failed.
        TimeoutError: the ranks have not ended in time.
    """
    new = multiprocessing.get_context("fork")
    ours, theirs = new.Pipe(duplex=False)
    # Each fork would write the text again that is not yet written.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    with tempfile.TemporaryDirectory(prefix="bluefog-ranks-") as folder, ours, theirs:
        ranks = [Rank(number, size, Path(folder), theirs) for number in range(size)]
        forks: list[BaseProcess] = [
            new.Process(target=_be, args=(rank, body, environ, os.getpid())) for rank in ranks
        ]
        try:
            with _signals_held():
                for fork in forks:
                    fork.start()
            _watch(ranks, forks, ours, time.monotonic() + limit, show)
        finally:
            for fork in forks:
                if fork.pid is not None:
                    fork.kill()
                    fork.join()


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Keep signals back in the block, because Python drops an error that is raised in os.fork."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(
    ranks: list[Rank],
    forks: list[BaseProcess],
    line: Connection,
    end: float,
    show: Callable[[Any], None],
) -> None:
    running = {fork.sentinel: at for at, fork in enumerate(forks)}
    while running:
        ready = wait([line, *running], max(0.0, end - time.monotonic()))
        if not ready:
            raise TimeoutError
        while line.poll():
            show(line.recv())
        for sentinel in ready:
            if isinstance(sentinel, int):
                at = running.pop(sentinel)
                forks[at].join()
                if forks[at].exitcode:
                    last = _output(ranks[at]).read_text(errors="replace").strip().splitlines()[-1:]
                    raise RankError(*(last or [f"exit code {forks[at].exitcode}"]))
    while line.poll():
        show(line.recv())


def _be(rank: Rank, body: Callable[[Rank], None], environ: Mapping[str, str], parent: int) -> None:
    """Run the body, with a file for what this process writes."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:  # It has ended before it could give a signal.
        return
    # The file stays open, because an error is written after this function has raised it.
    file = _output(rank).open("w", buffering=1)
    for stream in (1, 2):
        os.dup2(file.fileno(), stream)
    sys.stdout = sys.stderr = file
    os.environ.update(environ)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    body(rank)


def _output(rank: Rank) -> Path:
    return rank.folder / f"output{rank.number}"
