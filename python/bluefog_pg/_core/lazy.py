"""The names of the package, which its stub lists, each imported when it is first used."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import Any

from bluefog_pg._core.loader import load

_PACKAGE = "bluefog_pg"
# `from bluefog_pg import *` leaves these out: torch would no longer be torch.
_UNLISTED = ("collectives", "torch")


def find(name: str) -> Any:
    """What `bluefog_pg.name` is.

    Raises:
        AttributeError: there is no such name.
        ImportError: it is of the compiled module, which `load` refuses.
    """
    if name == "__version__":
        from importlib.metadata import version

        return version("bluefog-pg")
    homes = _homes()
    if name == "__all__":
        return sorted(homes)
    home = _PACKAGE if name in _UNLISTED else homes.get(name)
    if home is None:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    if home == _PACKAGE:
        return importlib.import_module(f"{_PACKAGE}.{name}")
    return getattr(load() if home == f"{_PACKAGE}._C" else importlib.import_module(home), name)


@cache
def _homes() -> dict[str, str]:
    """The module that each listed name is from; of a module, the package."""
    stub = ast.parse(Path(__file__).parent.with_name("__init__.pyi").read_text())
    return {
        alias.name: str(node.module)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
