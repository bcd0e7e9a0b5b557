"""Run a program that imports `bluefog` unchanged: `python -m bluefog_pg run_as_bluefog SCRIPT`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

# This folder has a package `bluefog`.
_FOLDER = Path(__file__).parent / "as_bluefog"


def python_path(environ: Mapping[str, str]) -> str:
    """Return this environment's PYTHONPATH with a package `bluefog` that finds bluefog_pg."""
    before = environ.get("PYTHONPATH")
    return os.pathsep.join([*([before] if before else []), str(_FOLDER)])


def add_to(commands: Any) -> None:
    command: argparse.ArgumentParser = commands.add_parser(
        "run_as_bluefog",
        help="run a script in which `import bluefog.torch` finds bluefog_pg.torch",
        description="Run a script in which `import bluefog` and its like find bluefog_pg. Under a "
        "launcher: torchrun --nproc-per-node 4 -m bluefog_pg run_as_bluefog SCRIPT. A module is "
        "run as by python -m: run_as_bluefog -m MODULE.",
    )
    command.add_argument(
        "-m", dest="is_module", action="store_true", help="SCRIPT is a module, as of python -m"
    )
    command.add_argument("script")
    command.add_argument("arguments", nargs="...", help="of the script")
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    sys.path[0] = str(Path.cwd() if args.is_module else Path(args.script).resolve().parent)
    found = importlib.util.find_spec("bluefog")
    origin = "" if found is None else found.origin or ""  # A plain folder has no origin.
    if origin and not Path(origin).is_relative_to(_FOLDER):
        raise SystemExit(
            f"[bluefog] run_as_bluefog: BlueFog itself is installed ({origin}), and the "
            "script would no longer find it; uninstall it, or run the script without this command"
        )
    sys.path.append(str(_FOLDER))
    # Processes that the script starts must find `bluefog`, too.
    os.environ["PYTHONPATH"] = python_path(os.environ)
    importlib.import_module("bluefog")
    sys.argv = [args.script, *args.arguments]
    if args.is_module:
        runpy.run_module(args.script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(args.script, run_name="__main__")
