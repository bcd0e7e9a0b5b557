"""This build backend is scikit-build-core's, but it installs torch only where there is none to use.

pip builds a package in a temporary environment, which hides the packages of the real one but not
their folder. The module fits one minor version of torch, so it has to be built against the torch
beside which it will lie, and downloading that a second time would take minutes.
"""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from typing import Any

from scikit_build_core import build as _scikit
from scikit_build_core.build import *  # noqa: F403
from scikit_build_core.build import __all__ as __all__

_TORCH = "torch>=2.13,<2.16"  # as in pyproject.toml, whose dependencies pip resolves afterwards
_FITS = re.compile(r"^__version__ = '2\.1[345]\.", re.MULTILINE)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*_scikit.get_requires_for_build_wheel(config_settings), *_torch(config_settings)]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*_scikit.get_requires_for_build_editable(config_settings), *_torch(config_settings)]


def _torch(config_settings: Any) -> list[str]:
    if "cmake.define.BLUEFOG_TORCH" in (config_settings or {}):
        return []
    for kind in ("purelib", "platlib"):
        version = Path(sysconfig.get_path(kind), "torch", "version.py")
        if version.exists() and _FITS.search(version.read_text()):
            return []
    return [_TORCH]
