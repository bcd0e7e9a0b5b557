"""python -m bluefog_pg run_as_bluefog SCRIPT: run a program that imports `bluefog`, as it is."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

# The modules of BlueFog and Asyncddp that bluefog_pg has, by their names below the package.
_MODULES = (
    "",
    ".common",
    ".common.topology_util",
    ".common.util",
    ".torch",
    ".torch.ddp",
    ".torch.mpi_ops",
    ".torch.optim",
    ".torch.optimizers",
    ".torch.topology_util",
    ".torch.utility",
)


def add_to(commands: Any) -> None:
    command: argparse.ArgumentParser = commands.add_parser(
        "run_as_bluefog",
        help="run a script in which `import bluefog.torch` finds bluefog_pg.torch",
        description="Run a script in which `import bluefog` and its like find bluefog_pg. Under a "
        "launcher: torchrun --nproc-per-node 4 -m bluefog_pg run_as_bluefog SCRIPT.",
    )
    command.add_argument("script")
    command.add_argument("arguments", nargs="...", help="of the script")
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    sys.path[0] = str(Path(args.script).resolve().parent)
    found = importlib.util.find_spec("bluefog")
    if found is not None and found.origin is not None:  # a folder of that name has none
        raise SystemExit(
            f"[bluefog] run_as_bluefog: BlueFog itself is installed ({found.origin}), and the "
            "script would no longer find it; uninstall it, or run the script without this command"
        )
    for module in _MODULES:
        sys.modules[f"bluefog{module}"] = importlib.import_module(f"bluefog_pg{module}")
    sys.argv = [args.script, *args.arguments]
    runpy.run_path(args.script, run_name="__main__")
