"""This module knows the addresses of this machine's network interfaces."""

from __future__ import annotations

import fcntl
import socket
import struct

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of linux/sockios.h


def ipv4_of(interface: str) -> str:
    """Return the interface's address.

    Raises:
        OSError: there is no such interface, or it has no IPv4 address.
    """
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking.fileno(), _GET_ADDRESS, request)
    return socket.inet_ntoa(answer[20:24])


def ipv4_addresses() -> dict[str, str]:
    """Return the addresses of the interfaces that have one."""
    found = {}
    for _, name in socket.if_nameindex():
        try:
            found[name] = ipv4_of(name)
        except OSError:  # The interface has no IPv4 address.
            continue
    return found
