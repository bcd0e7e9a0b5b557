"""This module writes what this process does for chrome://tracing or https://ui.perfetto.dev.

It writes <prefix><rank>.json if BLUEFOG_TIMELINE=<prefix> is in the environment when
`bluefog_pg.torch.init` is first called. In the picture, each tensor's name is a process, and each
thread a thread. `python -m bluefog_pg timeline <prefix>` merges the files of several ranks.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from bluefog_pg._core import variables

T = TypeVar("T")


class Timeline:
    """A Timeline owns the file of one process. An event is in the file when its call returns.

    Thread safety: any thread may write events.
    """

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("w")
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._processes: dict[str, int] = {}
        self._threads: dict[int, int] = {}
        # This has, by name, the threads of the activities that have begun and not ended.
        self._begun: dict[str, list[int]] = {}
        self._separator = "[\n"
        # Times of events count from the start of the host. The time of day lets files of several
        # hosts be merged.
        day_us = time.time_ns() // 1000
        self._write("M", 0, 0, name="clock", args={"day_us": day_us})
        atexit.register(self._close)

    def begin(self, name: str, activity: str) -> None:
        with self._lock:
            process = self._processes.get(name)
            if process is None:
                process = self._processes[name] = len(self._processes) + 1
                self._write("M", process, 0, name="process_name", args={"name": name})
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads) + 1)
            self._begun.setdefault(name, []).append(thread)
            self._write("B", process, thread, name=activity)

    def end(self, name: str) -> bool:
        """End the name's last activity, whichever thread began it; return whether there was one."""
        with self._lock:
            if begun := self._begun.get(name):
                self._write("E", self._processes[name], begun.pop())
                return True
            return False

    def _write(self, phase: str, process: int, thread: int, **more: Any) -> None:
        if self._file.closed or os.getpid() != self._owner:  # at the exit, or in a forked child
            return
        now = time.monotonic_ns() // 1000
        event = {"ph": phase, "ts": now, "pid": process, "tid": thread, **more}
        # Viewers also read a file without the closing bracket, such as that of a killed process.
        self._file.write(self._separator + json.dumps(event))
        self._file.flush()
        self._separator = ",\n"

    def _close(self) -> None:
        if os.getpid() == self._owner:
            with self._lock:
                self._file.write(self._separator.replace(",", "") + "]\n")
                self._file.close()


class _This:  # the state of this process
    timeline: Timeline | None = None
    is_decided = False


def start(rank: int) -> None:
    """Decide in the first call whether this process has a timeline, and open its file."""
    if (prefix := variables.read("BLUEFOG_TIMELINE")) and not _This.is_decided:
        try:
            _This.timeline = Timeline(f"{prefix}{rank}.json")
        except OSError as error:
            text = "[bluefog] init: BLUEFOG_TIMELINE=%s: nothing is drawn: %s"
            logging.getLogger("bluefog_pg").error(text, prefix, error)  # noqa: TRY400  # no trace
    _This.is_decided = True


def current() -> Timeline | None:
    return _This.timeline


@contextlib.contextmanager
def drawn(title: str, activity: str) -> Iterator[None]:
    """Draw the block's operation, which its caller waits for, if there is a timeline."""
    line = _This.timeline
    if line is None:
        yield
        return
    issued(line, title, activity, lambda: None)
    try:
        yield
    finally:
        line.end(title)


def drawn_until(
    title: str, activity: str, begin: Callable[[], Callable[[], None]]
) -> Callable[[], None]:
    """Draw an operation from its beginning to its end, if there is a timeline.

    Args:
        title, activity: the row of the picture, and the text on the bar.
        begin: begins the operation, and returns a function that ends it.

    Returns:
        A function that ends the operation and its bar.
    """
    line = _This.timeline
    if line is None:
        return begin()
    end = issued(line, title, activity, begin)

    def ended() -> None:
        try:
            end()
        finally:
            line.end(title)

    return ended


def issued(line: Timeline, title: str, activity: str, start: Callable[[], T]) -> T:
    """Draw that `start` starts an operation, and begin the bar that the caller must end.

    Returns:
        What `start` returns.
    """
    line.begin(title, f"ENQUEUE_{activity}")
    try:
        result = start()
    finally:
        line.end(title)
    line.begin(title, f"MPI_{activity}")  # BlueFog says MPI, whatever carries the operation.
    return result


def timeline_start_activity(tensor_name: str, activity_name: str) -> bool:
    """Write that an activity begins. BlueFog has this function.

    Any thread may call it.

    Args:
        tensor_name: the row of the picture.
        activity_name: the text on the bar.

    Returns:
        True; or False where there is no timeline, which is logged once.

    Raises:
        TypeError: a name is no str.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.timeline_start_activity("x", "COMPUTE")  # BLUEFOG_TIMELINE is not set.
        False
    """
    _require_str("timeline_start_activity", tensor_name=tensor_name, activity_name=activity_name)
    if _This.timeline is None:
        _complain()
        return False
    _This.timeline.begin(tensor_name, activity_name)
    return True


def timeline_end_activity(tensor_name: str) -> bool:
    """Write that the tensor's last activity ends. BlueFog has this function.

    Any thread may call it.

    Args:
        tensor_name: the row of the picture.

    Returns:
        True; or False where no activity has begun, or there is no timeline.

    Raises:
        TypeError: a name is no str.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.timeline_end_activity("x")  # BLUEFOG_TIMELINE is not set.
        False
    """
    _require_str("timeline_end_activity", tensor_name=tensor_name)
    if _This.timeline is None:
        _complain()
        return False
    return _This.timeline.end(tensor_name)


@contextlib.contextmanager
def timeline_context(tensor_name: str, activity_name: str) -> Iterator[None]:
    """Write that an activity begins, and at the block's end that it ends.

    BlueFog has this function.

    Args:
        tensor_name: the row of the picture.
        activity_name: the text on the bar.

    Raises:
        TypeError: a name is no str.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> with bf.timeline_context("x", "COMPUTE"):
        ...     x = torch.ones(2) * 2
    """
    timeline_start_activity(tensor_name, activity_name)
    try:
        yield
    finally:
        timeline_end_activity(tensor_name)


def _require_str(function: str, **names: object) -> None:
    for argument, name in names.items():
        if not isinstance(name, str):
            raise TypeError(
                f"[bluefog] {function}: {argument} must be a str, not {type(name).__name__}"
            )


@functools.cache  # It logs once.
def _complain() -> None:
    logging.getLogger("bluefog_pg").error(
        "[bluefog] there is no timeline: set BLUEFOG_TIMELINE=<prefix of the files> before the "
        "first bluefog_pg.torch.init()"
    )
