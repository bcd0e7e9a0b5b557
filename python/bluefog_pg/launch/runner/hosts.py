"""This module reads which hosts a job has, and spreads its ranks over them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_HOST = re.compile(r"(?P<name>[^\s:,-][^\s:,]*)(?::(?P<slots>\d+))?")
_LINE = re.compile(
    r"(?P<name>[^\s:,-][^\s:,]*)(?:\s+slots=(?P<slots>\d+))?(?:\s+max[_-]slots=\d+)?"
)


@dataclass(frozen=True)
class Host:
    """A Host runs at most `slots` ranks of a job."""

    name: str
    slots: int = 1


def parse_hosts(text: str) -> list[Host]:
    """Read hosts that are given like `a:4,b:2`. A host without a number has one slot.

    Raises:
        ValueError: the text has another form, or names a host twice.
    """
    return _checked([_host(_HOST.fullmatch(part.strip()), part) for part in text.split(",")])


def read_hostfile(path: Path) -> list[Host]:
    """Read a file with lines like `a slots=4`. A `#` begins a comment.

    Raises:
        ValueError: a line has another form, or names a host twice.
        OSError: the file cannot be read.
    """
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return _checked([_host(_LINE.fullmatch(line), line) for line in lines if line])


def spread(hosts: Sequence[Host], count: int) -> Iterator[tuple[Host, range]]:
    """Yield the hosts that run ranks, each with its ranks; a host is filled before the next one.

    Raises:
        ValueError: the hosts have too few slots.
    """
    slots = sum(host.slots for host in hosts)
    if slots < count:
        raise ValueError(f"{count} ranks need {count} slots, and the hosts have {slots}")
    first = 0
    for host in hosts:
        ranks = range(first, min(first + host.slots, count))
        if ranks:
            yield host, ranks
        first = ranks.stop


def is_here(name: str) -> bool:
    """Return whether this name means the machine that runs this process.

    Raises:
        ValueError: no address is known for the name.
    """
    if name in {"localhost", socket.gethostname()}:
        return True
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(f"host {name!r} is not known: {error.strerror}") from error
    return any(_is_own(family, address) for family, _, _, _, address in found)


def _is_own(family: int, address: tuple[object, ...]) -> bool:
    """Return whether a socket of this machine can have the address."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(address)
        except OSError:
            return False
        return True


def _host(found: re.Match[str] | None, text: str) -> Host:
    if found is None:
        raise ValueError(f"{text!r} is no host; write NAME:SLOTS, or NAME slots=SLOTS in a file")
    return Host(found["name"], int(found["slots"] or 1))


def _checked(hosts: list[Host]) -> list[Host]:
    names = [host.name for host in hosts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"host {twice[0]!r} is named twice; name it once, with all its slots")
    if not hosts:
        raise ValueError("no host is named")
    return hosts
