"""Hosts as network namespaces on one bridge."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

ADDRESS = "10.77.{net}.{host}"
_made = itertools.count()


def ip(*args: str, check: bool = True) -> None:
    subprocess.run(["ip", *args], check=check, capture_output=True, text=True)


def inside(host: str, *args: str) -> None:
    ip("netns", "exec", host, "ip", *args)


@contextlib.contextmanager
def network(n: int) -> Iterator[list[str]]:
    """The names of n namespaces, each with a link `eth0` to all others; skips without the right."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("hosts are network namespaces, which only root can make, with iproute2's `ip`")
    net = (os.getpid() + next(_made)) % 250
    bridge = f"bfb{net}"
    names = [f"bf{net}h{i}" for i in range(n)]
    try:
        ip("link", "add", bridge, "type", "bridge")
    except subprocess.CalledProcessError as error:
        if "File exists" in error.stderr:  # another run's
            raise
        pytest.skip(f"this kernel gives no network namespaces: {error.stderr.strip()}")
    try:
        ip("link", "set", bridge, "up")
        for i, name in enumerate(names):
            ip("netns", "add", name)
            link = f"{name}l"
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", bridge, "up")
            inside(name, "addr", "add", ADDRESS.format(net=net, host=i + 1) + "/24", "dev", "eth0")
            inside(name, "link", "set", "eth0", "up")
            inside(name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name, check=False)
        ip("link", "del", bridge, check=False)


def cut(host: str) -> None:
    """Nothing comes from that host any more, and nothing reaches it."""
    inside(host, "link", "set", "eth0", "down")


def address(host: str) -> str:
    net, index = host.removeprefix("bf").split("h")
    return ADDRESS.format(net=net, host=int(index) + 1)
