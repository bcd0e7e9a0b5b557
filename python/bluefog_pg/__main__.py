"""Run `python -m bluefog_pg`: examine or measure this machine, merge timelines, run scripts."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from bluefog_pg.launch import run_as_bluefog
from bluefog_pg.launch.runner import command as run_command
from bluefog_pg.tools import doctor, timeline_command, topology_command
from bluefog_pg.tools.arguments import positive
from bluefog_pg.tools.bench import command as bench_command


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bluefog_pg",
        description="Say what this machine offers to bluefog_pg, and try it with two ranks.",
    )
    parser.add_argument("--no-test", action="store_true", help="start no ranks")
    parser.add_argument(
        "--timeout",
        type=positive,
        default=doctor.PATIENCE,
        metavar="SECONDS",
        help="how long a try with two ranks may take (default: %(default)g)",
    )
    parser.set_defaults(run=_examine)
    commands = parser.add_subparsers(title="other commands", metavar="command")
    topology_command.add_to(commands)
    run_command.add_to(commands)
    run_as_bluefog.add_to(commands)
    bench_command.add_to(commands)
    timeline_command.add_to(commands)
    args = parser.parse_args()
    try:
        try:
            args.run(args)
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except BrokenPipeError:  # The reader has enough, as `head` has.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more.
        raise SystemExit(128 + signal.SIGPIPE) from None


def _examine(args: argparse.Namespace) -> None:
    raise SystemExit(0 if doctor.report(not args.no_test, args.timeout) else 1)


if __name__ == "__main__":
    main()
