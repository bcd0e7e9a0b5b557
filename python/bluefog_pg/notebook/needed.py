"""This module imports ipyparallel, which only notebooks need."""

from __future__ import annotations

import importlib
from typing import Any


def ipyparallel() -> Any:
    """Return the module ipyparallel.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module("ipyparallel")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"[bluefog] notebook: there is no module {error.name}; "
            "run `pip install 'bluefog_pg[notebook]'`"
        ) from error
