"""This package stands for `bluefog` in programs that `run_as_bluefog` runs.

Its modules are those of bluefog_pg.
"""

from __future__ import annotations

import importlib
import sys

# These are the modules of BlueFog and Asyncddp that bluefog_pg has, by their names below the
# package.
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
for _module in _MODULES:
    sys.modules[f"bluefog{_module}"] = importlib.import_module(f"bluefog_pg{_module}")
