"""An isolated build installs torch only where none fits, and all agree which torches fit."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.support.environment import ROOT

TORCH = ["torch>=2.13,<2.16"]
WHEEL = ROOT / ".ci/wheel"


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the backend as it is in an environment whose packages lie in tmp_path."""
    pytest.importorskip("scikit_build_core")
    monkeypatch.syspath_prepend(str(WHEEL))
    monkeypatch.delitem(sys.modules, "backend", raising=False)
    import backend

    monkeypatch.setattr(sysconfig, "get_path", lambda _kind: str(tmp_path))
    monkeypatch.chdir(ROOT)
    return backend


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("2.12.1", TORCH), ("2.13.0+cpu", []), ("2.15.0+cu130", []), ("2.16.0", TORCH)],
)
def test_installed_torch_is_taken_if_it_fits(
    backend: Any, tmp_path: Path, version: str, wanted: list[str]
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(f"\n__version__ = '{version}'\n")
    for requires in (
        backend.get_requires_for_build_wheel,
        backend.get_requires_for_build_editable,
    ):
        assert [each for each in requires() if each.startswith("torch")] == wanted


def test_torch_is_wanted_where_there_is_none_and_none_is_named(backend: Any) -> None:
    assert set(TORCH) <= set(backend.get_requires_for_build_wheel())
    named = {"cmake.define.BLUEFOG_TORCH": "/somewhere/torch"}
    assert not set(TORCH) & set(backend.get_requires_for_build_wheel(named))


def test_pyproject_lists_the_torches_that_wheels_have_modules_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    monkeypatch.syspath_prepend(str(WHEEL))
    import torches

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    minors = [int(version.split(".")[1]) for version in torches.VERSIONS]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert f"torch>=2.{minors[0]},<2.{minors[-1] + 1}" in project["project"]["dependencies"]
    built = project["tool"]["cibuildwheel"]["config-settings"]["cmake.define.BLUEFOG_TORCH"]
    folders = [f"/project/build/torch/{version}-x86_64/torch" for version in torches.VERSIONS]
    assert built.split(";") == folders
