"""This module counts the bytes that this process has sent over TCP, which is how gloo sends."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_BYTES_ACKED = 120  # where tcp_info has them (linux/tcp.h)
_TCP_INFO = 256  # bytes, of which the system fills as many as it has


def sent_over_tcp() -> int:
    """Return the bytes that others have received from the sockets that are open now."""
    return sum(_acknowledged(number) for number in _sockets())


def _sockets() -> Iterator[int]:
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                yield int(entry.name)


def _acknowledged(number: int) -> int:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as copy:
        info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO)
        return int(struct.unpack_from("Q", info, _BYTES_ACKED)[0])
    return 0
