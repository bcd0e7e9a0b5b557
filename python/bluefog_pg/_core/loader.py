"""This module is the only one that imports the compiled module."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import sys
import threading
import time
import weakref
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_MODULE = "bluefog_pg._C"
_BUILD = "pip install --no-build-isolation --force-reinstall --no-deps ."
_lock = threading.Lock()
_loaded: ModuleType | None = None
leaving: list[Callable[[], None]] = []  # functions to call at the exit, after the groups are left


def load() -> ModuleType:
    """Import `bluefog_pg._C` from the file that was built for the torch that is installed.

    Raises:
        ImportError: there is no such file.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load_from(_fitting(_files()))
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
    with contextlib.suppress(KeyboardInterrupt):
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


def _files() -> dict[str, Path]:
    """Return the module's files that this Python can load, by torch's minor version."""
    import re
    from importlib.machinery import all_suffixes

    found = {}
    # In an editable installation, the compiled files lie in another folder than the Python files.
    for folder in sys.modules["bluefog_pg"].__path__:
        for file in Path(folder).glob("_C.torch*"):
            parts = re.fullmatch(r"_C\.torch(\d+\.\d+)(\..+)", file.name)
            if parts is not None and parts[2] in all_suffixes():
                found[parts[1]] = file
    return found


def _fitting(files: dict[str, Path]) -> Path:
    """Return the file for the torch that is installed, or raise the ImportError that says why not.

    c10d's C++ classes change with each minor version of torch: a module built for another one
    crashes or misbehaves instead of failing to import.
    """
    from torch.version import __version__ as version

    installed = version.split("+")[0]
    file = files.get(".".join(installed.split(".")[:2]))
    if file is not None:
        return file
    if not files:
        raise ImportError(f"{_MODULE} was not built; run in the clone: {_BUILD}")
    *older, newest = sorted(files, key=lambda version: [int(part) for part in version.split(".")])
    built_for = f"{', '.join(older)} and {newest}" if older else newest
    raise ImportError(
        f"{_MODULE} was built for torch {built_for} but torch {installed} is installed; "
        f"run: pip install 'torch=={newest}.*', or build it for this torch, in a clone: {_BUILD}"
    )


def _load_from(file: Path) -> ModuleType:
    """Import the file under the name of the module, as an import statement would do."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(_MODULE, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module that this Python can load")
    module = module_from_spec(spec)
    sys.modules[_MODULE] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_MODULE]
        raise
    vars(sys.modules["bluefog_pg"])["_C"] = module
    return module
