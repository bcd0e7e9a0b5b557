"""This module finds the names of the package, which its stub lists, when they are first used."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import Any

from bluefog_pg._core.loader import load
from bluefog_pg._core.warning import warn

_PACKAGE = "bluefog_pg"
# `from bluefog_pg import *` leaves these out: the name `torch` would no longer be torch.
_UNLISTED = ("collectives", "torch")
# These functions of windows by name have moved to `bluefog_pg.torch`, and are deprecated here.
_IN_TORCH = """
    get_current_created_window_names get_win_version neighbor_win_accumulate
    neighbor_win_accumulate_nonblocking neighbor_win_get neighbor_win_get_nonblocking
    neighbor_win_put neighbor_win_put_nonblocking turn_off_win_ops_with_associated_p
    turn_on_win_ops_with_associated_p win_accumulate win_accumulate_nonblocking win_associated_p
    win_create win_fence win_free win_get win_get_nonblocking win_lock win_mutex win_poll win_put
    win_put_nonblocking win_read_neighbor win_update win_update_then_collect win_wait
""".split()


def find(name: str) -> Any:
    """Return what `bluefog_pg.<name>` is.

    Raises:
        AttributeError: there is no such name.
        ImportError: the name is of the compiled module, and `load` cannot import that.
    """
    if name == "__version__":
        from importlib.metadata import version

        return version("bluefog-pg")
    if name == "_C":
        return load()
    if is_deprecated(name):
        instead = f"{_PACKAGE}.torch.{name}"
        warn(f"[bluefog] {_PACKAGE}.{name} is deprecated: use {instead}", DeprecationWarning)
        return getattr(importlib.import_module(f"{_PACKAGE}.torch"), name)
    homes = _homes()
    if name == "__all__":
        return sorted(homes)
    home = _PACKAGE if name in _UNLISTED else homes.get(name)
    if home is None:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    if home == _PACKAGE:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    return getattr(load() if home == f"{_PACKAGE}._C" else importlib.import_module(home), name)


def is_deprecated(name: str) -> bool:
    """Return whether `find` warns of the name; then it must be asked at each use."""
    return name in _IN_TORCH


@cache
def _homes() -> dict[str, str]:
    """Return the module that each listed name comes from; for a module, that is the package."""
    stub = ast.parse(Path(__file__).parent.with_name("__init__.pyi").read_text())
    return {
        alias.name: str(node.module)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
