"""This module reads this package's environment variables, and says what each of them does.

The table in docs/environment.md is made from here (make docs-environment). The C++ reads some of
the variables in core/Env.cpp. A test compares the names with all that the sources name.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Variable(NamedTuple):
    """A Variable is a row of the table; `page` is the page of docs/ that says more."""

    values: str
    effect: str
    page: str = ""


VARIABLES = {
    "BLUEFOG_ACCELERATOR": Variable(
        "`none`, `DEVICE:BACKEND`, `DEVICE:BACKEND:LIBRARY`",
        "chooses the backend for tensors on a device, in place of NCCL for CUDA; `none` leaves "
        "devices alone",
        "gpu.md",
    ),
    "BLUEFOG_CHECK": Variable(
        "`before`",
        "has neighbors' operations on an accelerator wait until all agree, so that no result is "
        "ever wrong",
        "gpu.md",
    ),
    "BLUEFOG_LOG_LEVEL": Variable(
        "`trace`, `debug`, `info`, `warning`, `error`, `fatal`",
        "the level of Python's logger `bluefog_pg`, which `bluefog_pg.torch.init` sets",
    ),
    "BLUEFOG_MPI_HOME": Variable(
        "a folder",
        "the prefix of the Open MPI to use, in place of the one that pip brings",
        "hosts.md",
    ),
    "BLUEFOG_NODES_PER_MACHINE": Variable(
        "a number of ranks",
        "makes machines of so many ranks of one host, to try `hierarchical_neighbor_allreduce`",
    ),
    "BLUEFOG_TIMELINE": Variable(
        "a prefix of files",
        "writes the timeline of each rank that calls `bluefog_pg.torch.init` to "
        "`PREFIX<rank>.json`; `python -m bluefog_pg timeline PREFIX` merges them",
    ),
    "BLUEFOG_TRANSPORT": Variable(
        "`mpi`", "has ranks of one host use MPI, as ranks of different hosts do"
    ),
    "BLUEFOG_TUNING": Variable(
        "`off`", "turns off the choices that adapt to the machine while a job runs"
    ),
}


def read(name: str) -> str | None:
    """Return a variable's value, or None where it is not set.

    Raises:
        KeyError: the variable has no description here.
    """
    if name not in VARIABLES:
        raise KeyError(name)
    return os.environ.get(name)


def table() -> str:
    """Return the descriptions as a table of Markdown."""
    rows = ["| variable | values | what it does |", "| --- | --- | --- |"]
    for name, (values, effect, page) in VARIABLES.items():
        more = f" ([{page}]({page}))" if page else ""
        rows.append(f"| `{name}` | {values} | {effect}{more} |")
    return "\n".join(rows)
