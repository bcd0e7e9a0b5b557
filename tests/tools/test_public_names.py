"""The names of bluefog_pg are those of its stub, and are imported when they are first used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import bluefog_pg
from bluefog_pg._core import lazy

PACKAGE = Path(bluefog_pg.__file__).parent
IMPORTS = [
    node
    for node in ast.parse((PACKAGE / "__init__.pyi").read_text()).body
    if isinstance(node, ast.ImportFrom)
]
HOMES = {alias.name: node.module for node in IMPORTS for alias in node.names}
MODULES = {path.stem for path in PACKAGE.iterdir()}


def printed(code: str) -> list[str]:
    """Run the code in a new interpreter, and return the words that it printed."""
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


def test_stub_exports_each_name_once() -> None:
    """A type checker takes a name without `as` for the stub's own."""
    aliases = [alias for node in IMPORTS for alias in node.names]
    assert [alias.name for alias in aliases] == [alias.asname for alias in aliases]
    assert len(aliases) == len(HOMES)


@pytest.mark.slow
def test_all_and_dir_are_the_names_of_the_stub() -> None:
    """They are so before any name is used; a module that star leaves out is an attribute, too."""
    assert bluefog_pg.__all__ == sorted(HOMES)
    code = "import bluefog_pg as b; print(*dir(b), b.collectives.__name__, b.torch.__name__)"
    *names, collectives, torch = printed(code)
    assert {*HOMES, "__version__"} <= set(names)
    assert (collectives, torch) == ("bluefog_pg.collectives", "bluefog_pg.torch")


@pytest.mark.parametrize("name", HOMES)
def test_name_is_what_its_module_has(name: str) -> None:
    public = getattr(bluefog_pg, name)  # This loads the compiled module, which no file is named as.
    assert public is getattr(importlib.import_module(HOMES[name]), name)


@pytest.mark.slow
def test_star_imports_all_names_and_leaves_torch_alone() -> None:
    code = "import torch; from bluefog_pg import *; print(torch.__name__, *globals())"
    name, *names = printed(code)
    assert name == "torch"
    assert {each for each in names if not each.startswith("_")} == {*HOMES, "torch"}


@pytest.mark.parametrize("name", lazy._IN_TORCH)
def test_functions_of_windows_by_name_warn_here(name: str) -> None:
    """Each use of an old name warns, at the line of the program."""
    with pytest.warns(DeprecationWarning, match=rf"use bluefog_pg\.torch\.{name}\Z") as told:
        function = getattr(bluefog_pg, name)
    assert [each.filename for each in told] == [__file__]
    assert function is getattr(bluefog_pg.torch, name)
    assert name not in {*vars(bluefog_pg), *dir(bluefog_pg)}


def test_version_is_the_installed_one() -> None:
    from importlib.metadata import version

    assert bluefog_pg.__version__ == version("bluefog-pg")


def test_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'bluefog_pg' has no attribute 'nothing'"):
        _ = bluefog_pg.nothing


def test_no_name_of_the_package_is_a_module_of_it() -> None:
    """Importing such a module would put it in the name's place."""
    assert not MODULES & {name for name, home in HOMES.items() if home != "bluefog_pg"}
