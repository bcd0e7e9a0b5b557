"""Start the ranks of a program: `bfrun -np 4 python train.py`, or `python -m bluefog_pg run`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from bluefog_pg.launch.runner.arguments import add_ranks, environ_of_ranks, hosts_of
from bluefog_pg.launch.runner.job import Job

_DESCRIPTION = """\
Start the ranks of a program on this host, or on several by ssh. Each line that a rank writes is
shown at once, also in a pipe, and begins with the rank's number. Ranks that are Python programs do
not buffer what they write, unless you set PYTHONUNBUFFERED to an empty text. When a rank fails, the
others are stopped."""
_EXAMPLES = """\
examples:
  %(prog)s -np 4 python train.py
  %(prog)s -np 8 -H a:4,b:4 python train.py --lr 0.1
  %(prog)s -np 4 --keep-going python train.py"""
# These belong to the host or to the login there, so ranks on other hosts have their own.
_OF_THE_HOST = frozenset(
    "DISPLAY HOME HOSTNAME LOGNAME LS_COLORS MAIL OLDPWD PWD SHELL SHLVL TERM TMPDIR USER _".split()
)
_OF_THE_HOST_BEGIN = ("DBUS_", "SSH_", "SYSTEMD_", "XDG_")


def main() -> None:
    """Run the program `bfrun`."""
    parser = argparse.ArgumentParser(prog="bfrun", allow_abbrev=False)
    _add_arguments(parser)
    args = parser.parse_args()
    args.run(args)


def add_to(commands: Any) -> None:
    _add_arguments(
        commands.add_parser(
            "run",
            allow_abbrev=False,
            help="start the ranks of a program, on one host or several",
        )
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = _DESCRIPTION, _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("-v", "--version", action="version", version=metadata.version("bluefog-pg"))
    add_ranks(
        parser,
        example="A:4,B:4",
        hosts="hosts, and how many ranks each one runs at most",
        hostfile="a file with lines `A slots=4`",
    )
    parser.add_argument("-p", "--ssh-port", type=int, metavar="PORT", help="where sshd listens")
    parser.add_argument(
        "--network-interface", metavar="NAME", help="the network between hosts, such as eth0"
    )
    parser.add_argument(
        "--timeline-filename",
        metavar="PREFIX",
        help="write each rank's timeline to PREFIX<rank>.json",
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="let the other ranks go on when one has failed"
    )
    parser.add_argument(
        "--extra-mpi-flags",
        metavar="FLAGS",
        default="",
        help="settings of Open MPI between hosts, such as '-mca btl_tcp_links 2'",
    )
    parser.add_argument("--verbose", action="store_true", help="say what is started, and log more")
    parser.add_argument("command", nargs="...", metavar="COMMAND", help="the program")
    parser.set_defaults(run=lambda args: _run(args, parser))


def _run(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    name = parser.prog.split()[-1]
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("name the program to start, such as: python train.py")
    if args.num_proc < 1:
        parser.error(f"-np {args.num_proc}: a job has at least one rank")
    if command[0].endswith(".py"):
        command = [sys.executable, *command]

    def say(text: str) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)

    # A reader of a pipe gets each rank's line when it is written.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        environ = _environ(args)
        hosts = hosts_of(args)
        if args.verbose:
            say(f"{args.num_proc} ranks of: {shlex.join(command)}")
        job = Job(
            command, str(Path.cwd()), environ, args.num_proc, hosts, args.network_interface,
            args.ssh_port, args.keep_going, say,
        )  # fmt: skip
        code = job.run()
    except (OSError, ValueError) as error:
        raise SystemExit(f"{name}: {error}") from error
    raise SystemExit(code)


def _environ(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment of the ranks, on whatever host."""
    passed_on = {
        key: value
        for key, value in os.environ.items()
        if key not in _OF_THE_HOST and not key.startswith(_OF_THE_HOST_BEGIN)
    }
    environ = environ_of_ranks(passed_on, args.num_proc)
    # Python would otherwise keep a rank's lines until the rank ends, as ranks write to a file.
    # torchrun leaves it so, but people who watch a training want its lines while it runs.
    environ.setdefault("PYTHONUNBUFFERED", "1")
    if args.timeline_filename:
        environ["BLUEFOG_TIMELINE"] = args.timeline_filename
    if args.verbose:
        environ["BLUEFOG_LOG_LEVEL"] = "debug"
    if args.network_interface:
        for variable in ("OMPI_MCA_btl_tcp_if_include", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            environ[variable] = args.network_interface
    return environ | _mpi_settings(args.extra_mpi_flags)


def _mpi_settings(flags: str) -> dict[str, str]:
    """Return flags of mpirun as the environment that says the same to Open MPI."""
    settings = {}
    words = iter(shlex.split(flags))
    for word in words:
        if word not in {"-mca", "--mca"}:
            raise ValueError(f"--extra-mpi-flags: {word!r} is for mpirun; use -mca NAME VALUE")
        name, value = next(words, None), next(words, None)
        if name is None or value is None:
            raise ValueError(f"--extra-mpi-flags: {word} needs a name and a value")
        settings[f"OMPI_MCA_{name}"] = value
    return settings


if __name__ == "__main__":
    main()
