"""This module starts the ranks of a notebook's kernel, and ends them."""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from bluefog_pg.notebook.cluster import MARK, READY
from bluefog_pg.notebook.last_lines import LastLines
from bluefog_pg.notebook.needed import ipyparallel

_TO_NAME = 1  # seconds; ipyparallel may hear of an engine's death before this kernel does
_TO_STOP = 30  # seconds until a cluster that does not stop is killed


class Session:
    """A Session has the ranks that one kernel has started, and a client for them."""

    def __init__(self, size: int, timeout: float) -> None:
        self._client: Any = None
        self._folder: Path | None = None
        self._told: list[str] = []
        self._output = LastLines()
        self._has_news = threading.Event()  # It is ready, or has ended.
        self._has_named = threading.Event()  # A rank that has died is named.
        self._is_stopping = False
        command = [sys.executable, "-m", "bluefog_pg.notebook.cluster"]
        self._cluster = subprocess.Popen(  # noqa: S603 No part of it is a user's text.
            [*command, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Jupyter interrupts and kills a kernel with its group.
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.view = self._connect(size, timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the ranks, and all that they have started."""
        if self._client is not None:
            if len(self._client.ids) < len(self.view):
                self._has_named.wait(_TO_NAME)
            self._client.close()
        self._is_stopping = True
        # The cluster stops all when its input ends.
        with contextlib.suppress(BrokenPipeError):
            cast("IO[str]", self._cluster.stdin).close()
        try:
            self._cluster.wait(_TO_STOP)
        except subprocess.TimeoutExpired:
            self._cluster.kill()
            self._cluster.wait()
        self._reader.join(_TO_STOP)

    def is_running(self) -> bool:
        return self._cluster.poll() is None

    def _connect(self, size: int, timeout: float) -> Any:
        if not self._has_news.wait(timeout):
            raise TimeoutError(
                f"[bluefog] notebook: {size} ranks have not started in {timeout:g} s; "
                f"give them more time: start({size}, timeout={2 * timeout:g})"
                f"{self._output.quoted()}"
            )
        if self._folder is None:
            why = "; ".join(self._told) or f"exit code {self._cluster.wait()}"
            raise RuntimeError(
                f"[bluefog] notebook: the ranks did not start: {why}{self._output.quoted()}"
            )
        from IPython import get_ipython

        file = self._folder / "security" / "ipcontroller-client.json"
        self._client = ipyparallel().Client(str(file))
        self._client.wait_for_engines(size, timeout=timeout, interactive=False)
        # Only the first client of a kernel makes the magics by itself.
        if get_ipython() is not None:
            self._client.activate()
        return self._client[:]

    def _read(self) -> None:
        for line in cast("IO[str]", self._cluster.stdout):
            text = line.rstrip("\n")
            if not text.startswith(MARK):
                self._output.write(text)
            elif text.startswith(MARK + READY):
                self._folder = Path(text.removeprefix(MARK + READY))
                self._has_news.set()
            elif self._folder is not None and not self._is_stopping:
                print(f"bluefog_pg.notebook: {text[1:]}", file=sys.stderr, flush=True)
                self._has_named.set()
            else:
                self._told.append(text[1:])
        self._has_news.set()


_running: Session | None = None


def start(size: int, *, timeout: float = 120) -> Any:
    """Start so many ranks on this host, and return ipyparallel's view of them.

    After this, `%%px` runs a cell on all ranks. Each rank is a process whose environment has RANK,
    WORLD_SIZE, MASTER_ADDR and MASTER_PORT, so a cell can call `init_process_group("bluefog")` or
    `bluefog_pg.torch.init()`. The ranks get the variables that you have set in `os.environ` before.
    Engine number r of ipyparallel is rank r. The ranks end with the kernel.

    Raises:
        ImportError: ipyparallel is not installed.
        RuntimeError: this kernel has ranks that run, or a rank ended while it started.
        TimeoutError: the ranks have not started in so many seconds.

    Example:
        >>> from bluefog_pg import notebook
        >>> view = notebook.start(4)  # doctest: +SKIP
        >>> view.apply_sync(lambda: 2)  # doctest: +SKIP
        [2, 2, 2, 2]
    """
    global _running
    ipyparallel()
    if size < 1:
        raise ValueError(f"[bluefog] notebook: start({size}): there must be at least one rank")
    if _running is not None:
        if _running.is_running():
            raise RuntimeError(
                f"[bluefog] notebook: {len(_running.view)} ranks run already; "
                "call bluefog_pg.notebook.stop() first"
            )
        stop()
    _running = Session(size, timeout)
    return _running.view


def stop() -> None:
    """End the ranks that `start` has started. Nothing happens where there are none.

    Example:
        >>> from bluefog_pg import notebook
        >>> notebook.stop()
    """
    global _running
    if _running is not None:
        _running.stop()
        _running = None


@contextlib.contextmanager
def ranks(size: int, *, timeout: float = 120) -> Iterator[Any]:
    """Start ranks as `start` does, and stop them when the block ends.

    Example:
        >>> from bluefog_pg import notebook
        >>> with notebook.ranks(2) as view:  # doctest: +SKIP
        ...     view.apply_sync(lambda: 2)
        [2, 2]
    """
    view = start(size, timeout=timeout)
    try:
        yield view
    finally:
        stop()


atexit.register(stop)
