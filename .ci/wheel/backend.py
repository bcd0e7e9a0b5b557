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

from packaging.requirements import Requirement
from scikit_build_core import build as _scikit
from scikit_build_core.build import *  # noqa: F403
from scikit_build_core.build import __all__ as __all__

_VERSION = re.compile(r"^__version__ = '([^']+)'", re.MULTILINE)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*_scikit.get_requires_for_build_wheel(config_settings), *_torch(config_settings)]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return [*_scikit.get_requires_for_build_editable(config_settings), *_torch(config_settings)]


def _torch(config_settings: Any) -> list[str]:
    if "cmake.define.BLUEFOG_TORCH" in (config_settings or {}):
        return []
    wanted = Requirement(_wanted()).specifier
    for kind in ("purelib", "platlib"):
        file = Path(sysconfig.get_path(kind), "torch", "version.py")
        version = _VERSION.search(file.read_text()) if file.exists() else None
        if version and wanted.contains(version[1], prereleases=True):
            return []
    return [_wanted()]


def _wanted() -> str:
    """Return which torch the package depends on, by pyproject.toml."""
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    found = re.search(r'^dependencies = .*?"(torch\b[^"]*)"', project, re.MULTILINE | re.DOTALL)
    assert found, "pyproject.toml does not depend on torch"
    return found[1]
