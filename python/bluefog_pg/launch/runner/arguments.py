"""This module has the arguments and the ranks' environment that bfrun and ibfrun share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from bluefog_pg.launch.run_as_bluefog import python_path
from bluefog_pg.launch.runner.hosts import Host, parse_hosts, read_hostfile


def add_ranks(parser: argparse.ArgumentParser, example: str, hosts: str, hostfile: str) -> None:
    """Add -np, -H and -hostfile.

    Args:
        parser: gets the arguments.
        example: an example of -H.
        hosts: the help of -H.
        hostfile: the help of -hostfile.
    """
    parser.add_argument(
        "-np", "--num-proc", type=int, required=True, metavar="N", help="the number of ranks"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-H", "--hosts", metavar=example, help=hosts)
    where.add_argument("-hostfile", "--hostfile", type=Path, metavar="FILE", help=hostfile)


def hosts_of(args: argparse.Namespace) -> list[Host]:
    """Return the hosts that the arguments of `add_ranks` name; this host, if they name none.

    Raises:
        OSError, ValueError: the hosts cannot be read, or are none.
    """
    if args.hosts:
        return parse_hosts(args.hosts)
    if args.hostfile:
        return read_hostfile(args.hostfile)
    return [Host("localhost", args.num_proc)]


def environ_of_ranks(environ: Mapping[str, str], size: int) -> dict[str, str]:
    """Return an environment with what every rank of `size` ranks needs."""
    found = dict(environ)
    if size > 1:
        found.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
    if find_spec("bluefog") is None:
        found["PYTHONPATH"] = python_path(found)
    return found
