"""Start ranks for notebooks, and end them: `ibfrun start -np 4`, `ibfrun stop`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from bluefog_pg.launch.runner.arguments import add_ranks, hosts_of
from bluefog_pg.launch.runner.hosts import is_here, spread
from bluefog_pg.notebook.claim import Claim, end_holder
from bluefog_pg.notebook.cluster import Cluster
from bluefog_pg.notebook.last_lines import LastLines
from bluefog_pg.notebook.needed import ipyparallel

_PROFILE = "bluefog"


def main() -> None:
    """Run the program `ibfrun`."""
    parser = argparse.ArgumentParser(
        prog="ibfrun",
        allow_abbrev=False,
        description="Start engines of ipyparallel, each of which is a rank. A notebook reaches "
        f"them by ipyparallel.Client(profile={_PROFILE!r}).",
    )
    parser.add_argument("-v", "--version", action="version", version=metadata.version("bluefog-pg"))
    commands = parser.add_subparsers(required=True, metavar="start|stop")
    _add_start(commands)
    _add_stop(commands)
    args = parser.parse_args()
    try:
        raise SystemExit(args.run(args))
    except (OSError, ValueError, ImportError) as error:
        raise SystemExit(f"ibfrun: {error}") from error


def _add_start(commands: Any) -> None:
    start = commands.add_parser(
        "start",
        allow_abbrev=False,
        help="run engines on this host until Ctrl-C or `ibfrun stop`",
    )
    add_ranks(start, example="localhost:4", hosts="this host, and no other", hostfile="the same")
    _add_profile(start)
    start.add_argument(
        "--enable-heartbeat",
        action="store_true",
        help="no effect: ipyparallel's heartbeats are always on",
    )
    start.add_argument(
        "--verbose", action="store_true", help="show what engines write, and log more"
    )
    start.set_defaults(run=_start)


def _add_stop(commands: Any) -> None:
    stop = commands.add_parser("stop", allow_abbrev=False, help="end the engines")
    _add_profile(stop)
    stop.set_defaults(run=_stop)


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ipython-profile", default=_PROFILE, metavar="NAME", help=f"{_PROFILE} by default"
    )


def _start(args: argparse.Namespace) -> int:
    if args.num_proc < 1:
        raise ValueError(f"-np {args.num_proc}: there must be at least one rank")
    for host, _ in spread(hosts_of(args), args.num_proc):
        if not is_here(host.name):
            raise ValueError(
                f"host {host.name!r} is another one: engines run on this host alone; "
                "start a script on several hosts by bfrun"
            )
    folder = _profile_folder(args.ipython_profile)
    claim = Claim(_claim_file(folder))
    written = sys.stderr

    def say(text: str) -> None:
        print(f"ibfrun: {text}", file=written, flush=True)

    def on_ready() -> None:
        profile = args.ipython_profile
        say(f"{args.num_proc} engines are ready: ipyparallel.Client(profile={profile!r})")

    cluster = Cluster(args.num_proc, folder, say, on_ready, is_quiet=not args.verbose)
    if args.verbose:
        os.environ["BLUEFOG_LOG_LEVEL"] = "debug"
        code = cluster.run()
    else:
        code = _run_quietly(cluster)
    del claim  # It is held until all have ended.
    return code


def _run_quietly(cluster: Cluster) -> int:
    """Run the engines without showing what they write, which cells of a notebook show anyway."""
    last = LastLines()
    try:
        with contextlib.redirect_stdout(last), contextlib.redirect_stderr(last):
            return cluster.run()
    except ValueError as error:
        raise ValueError(f"{error}{last.quoted()}") from error


def _stop(args: argparse.Namespace) -> int:
    pid = end_holder(_claim_file(_profile_folder(args.ipython_profile)))
    if pid is None:
        raise ValueError(f"no engines run in the profile {args.ipython_profile!r}")
    return 0


def _profile_folder(name: str) -> Path:
    ipyparallel()
    from IPython.core.profiledir import ProfileDir
    from IPython.paths import get_ipython_dir

    where = get_ipython_dir()
    Path(where).mkdir(parents=True, exist_ok=True)
    return Path(ProfileDir.create_profile_dir_by_name(where, name).location)


def _claim_file(folder: Path) -> Path:
    return folder / "pid" / "ibfrun.pid"


if __name__ == "__main__":
    main()
