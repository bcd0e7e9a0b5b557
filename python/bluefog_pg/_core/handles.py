"""This module keeps the operations under way, by their handles (integers) and their names."""

from __future__ import annotations

import contextlib
import functools
import reprlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from bluefog_pg._core.errors import NAMED

if TYPE_CHECKING:
    import torch

    # A Started is an operation's Work, and a function that returns its result after wait().
    Started = tuple[dist.Work, Callable[[], torch.Tensor]]


@dataclass(frozen=True)
class _Issued:
    key: str | None
    work: dist.Work
    # This function keeps the operation's tensors alive. It may also write into the caller's tensor,
    # which must happen once.
    result: Callable[[], torch.Tensor]

    def settle(self) -> None:
        """Put an ended operation's result in its place; leave its error for `take` to raise."""
        with contextlib.suppress(Exception):
            self.result()


class Handles:
    """Handles own the operations that were issued and not yet taken, and know which names are busy.

    Thread safety: any thread may use them. No thread waits for an operation with the lock held.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._issued: dict[int, _Issued] = {}
        # This has the Work of each busy name; None, if it has not started yet, or its caller waits.
        self._busy: dict[str, dist.Work | None] = {}
        self._is_suspended = False

    def suspend(self) -> None:
        """Refuse new operations until `resume`; operations under way go on."""
        self._is_suspended = True

    def resume(self) -> None:
        self._is_suspended = False

    def require_running(self, what: str) -> None:
        """Raise ValueError between `suspend` and `resume`."""
        if self._is_suspended:
            raise ValueError(f"[bluefog] {what}: operations are suspended; call resume() first")

    @contextlib.contextmanager
    def reserved(self, key: str | None) -> Iterator[None]:
        """Keep a name busy during the block, which runs an operation that its caller waits for.

        Args:
            key: the operation and its name; None, if it has no name.

        Raises:
            ValueError: an operation of that key is under way.
        """
        self._reserve(key)
        try:
            with _told_of(key):
                yield
        finally:
            self._release(key, None)

    def issue(self, key: str | None, start: Callable[[], Started]) -> int:
        """Start an operation, and return its handle, a positive number.

        Args:
            key: as in `reserved`.
            start: starts the operation.

        Raises:
            ValueError: an operation of that key is under way.
        """
        self._reserve(key)
        try:
            work, result = start()
        except BaseException:
            self._release(key, None)
            raise
        with self._lock:
            if key is not None:
                self._busy[key] = work
            self._last += 1
            self._issued[self._last] = _Issued(key, work, functools.cache(result))
            return self._last

    def poll(self, handle: int) -> bool:
        """Return whether the operation has ended, with success or failure.

        Raises:
            ValueError: no operation has this handle.
        """
        issued = self._find(handle, "poll")
        has_ended = issued.work.is_completed()
        if has_ended:
            issued.settle()
        return has_ended

    def take(self, handle: int) -> torch.Tensor:
        """Wait for the operation, forget its handle, and return its result, or raise its error.

        Raises:
            ValueError: no operation has this handle.
        """
        issued = self._find(handle, "synchronize")
        try:
            with _told_of(issued.key):
                issued.work.wait()
        except Exception:
            self._forget(handle, issued)
            raise
        # After Ctrl-C the handle is kept: the operation goes on, and can be waited for again.
        self._forget(handle, issued)
        return issued.result()

    def wait_for_all(self) -> None:
        """Wait until all issued operations have ended; leave their errors for `take` to raise."""
        with self._lock:
            issued = list(self._issued.values())
        for each in issued:
            with contextlib.suppress(Exception):
                each.work.wait()
            each.settle()

    def _find(self, handle: int, what: str) -> _Issued:
        with self._lock, contextlib.suppress(TypeError):  # raised if the handle is not hashable
            if issued := self._issued.get(handle):
                return issued
        raise ValueError(
            f"[bluefog] {what}: there is no handle {reprlib.repr(handle)}; "
            "each can be waited for once"
        )

    def _forget(self, handle: int, issued: _Issued) -> None:
        with self._lock:
            self._issued.pop(handle, None)
        self._release(issued.key, issued.work)

    def _reserve(self, key: str | None) -> None:
        if key is None:
            return
        with self._lock:
            if key in self._busy:
                work = self._busy[key]
                if work is None or not work.is_completed():
                    raise ValueError(
                        f"[bluefog] {key}: an operation of this name is under way; "
                        "wait for it, or use another name"
                    )
            self._busy[key] = None

    def _release(self, key: str | None, work: dist.Work | None) -> None:
        if key is None:
            return
        with self._lock:
            # A later operation may have taken the name by now.
            if self._busy.get(key) is work:
                self._busy.pop(key, None)


@contextlib.contextmanager
def _told_of(key: str | None) -> Iterator[None]:
    """Put the program's name for the operation before the backend's in the texts of errors.

    A collective with a name is made of neighbor operations, which the program never called.
    """
    try:
        yield
    except dist.DistError as error:
        text = str(error)
        if key is not None and text.startswith(NAMED) and key not in text:
            rank, _, what = text.removeprefix(NAMED).strip().partition(" ")
            called, colon, why = what.partition(":")
            error.args = (f"{NAMED} {rank} {key} ({called}){colon}{why}",)
        raise
