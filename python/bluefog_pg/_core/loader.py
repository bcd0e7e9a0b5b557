"""This module is the only one that imports the compiled module."""

from __future__ import annotations

import atexit
import functools
import importlib
import itertools
import sys
import threading
import time
import weakref
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_REINSTALL = "pip install --no-build-isolation --force-reinstall --no-deps ."
_lock = threading.Lock()
_loaded: ModuleType | None = None
leaving: list[Callable[[], None]] = []  # functions to call at the exit, after the groups are left


def load() -> ModuleType:
    """Import `bluefog_pg._C`, having checked that it was built for the torch that is installed.

    Raises:
        ImportError: the module is missing, or fits another minor version of torch.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _check_torch_version()
            _loaded = importlib.import_module("bluefog_pg._C")
            leave_at_exit()
        return _loaded


@functools.cache
def leave_at_exit() -> None:
    """Register once that groups which still exist at the exit are left before the interpreter ends.

    Python runs exit functions in reverse. Those of a program may still use the groups, so the
    import of torch registers this one, before the program can register its own.
    """
    # This counter gives the finalizers their numbers; a later finalizer has a higher number.
    atexit.register(_leave, next(getattr(weakref.finalize, "_index_iter", itertools.count())))


def _leave(before: int) -> None:
    """Leave the groups at the exit; `before` is the number of finalizers at the registration."""
    if _loaded is None:
        return
    _finalize_later_than(before)
    _loaded.shutdown_all()
    for leave in leaving:
        leave()
    # A gloo group may exist beside ours. Its worker threads may still hold tensors of the last
    # operation, and abort the process if the interpreter ends first. Our groups end so fast that
    # this would happen often.
    time.sleep(0.02)


def _finalize_later_than(before: int) -> None:
    """Call the program's finalizers, which may use the groups, before the groups are left.

    Python calls all finalizers from one exit function, which the first finalizer registers. A
    module that torch imports makes that first one, so Python would call them all after this
    function.
    """
    registry: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    late = [(each.index, finalize) for finalize, each in registry.items() if each.atexit]
    for index, finalize in sorted(late, key=itemgetter(0), reverse=True):
        if index > before:
            try:
                finalize()
            except Exception:
                sys.excepthook(*sys.exc_info())


def _check_torch_version() -> None:
    # c10d's C++ classes change with each minor version of torch: a module built for another one
    # crashes or misbehaves instead of failing to import.
    from torch.version import __version__ as version

    try:
        from bluefog_pg._build_info import TORCH_VERSION
    except ModuleNotFoundError as error:
        raise ImportError(f"bluefog_pg._C was not built; run in the clone: {_REINSTALL}") from error
    installed = version.split("+")[0]
    built_for = ".".join(TORCH_VERSION.split(".")[:2])
    if installed.split(".")[:2] != built_for.split("."):
        raise ImportError(
            f"bluefog_pg._C was built for torch {built_for} but torch {installed} is installed; "
            f"run in the clone: {_REINSTALL}"
        )
