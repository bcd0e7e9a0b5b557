"""This module says what the machine offers, and whether two ranks get right results on it."""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import resource
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bluefog_pg._core import variables
from bluefog_pg.launch import mpi
from bluefog_pg.launch.networks import ipv4_addresses
from bluefog_pg.tools import forks, selftest

PATIENCE = 5.0  # seconds in which two ranks must have ended
_TO_ANSWER = 3.0  # seconds in which a library must have answered
_WHOLE = 20.0  # seconds in which a report must have ended
_IMPORTED_BEFORE = ("torch.distributed", "networkx", "bluefog_pg.neighbors")
_LIBRARY_TEXT = 8192  # more than MPI_MAX_LIBRARY_VERSION_STRING


class _LackError(Exception):
    """A _LackError says what is missing, and what to do about it."""


@dataclass(frozen=True)
class _Look:
    """A _Look finds one thing out."""

    name: str
    find: Callable[[], str]
    is_needed: bool = False
    doing: str = ""  # what is said before a look that may take more than half a second
    needs: str = ""  # the name of an earlier look; what that one lacks, this one lacks, too


class _Clock:
    """A _Clock says what is left of the time of a report."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def at_most(self, seconds: float) -> float:
        """Return the lesser of the seconds and what is left.

        Raises:
            _LackError: nothing is left.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise _LackError(f"not tried, because {self._seconds:g} s are over")
        return min(seconds, left)


def report(tries: bool, patience: float = PATIENCE) -> bool:
    """Print what the machine offers, line by line, and announce slow looks on stderr.

    Each look that might hang has a deadline, and so has the whole report, which always ends.

    Args:
        tries: whether to test with two ranks, too.
        patience: the seconds in which two ranks must have ended. The whole report may take longer
            by what these are above PATIENCE, for both tries.

    Returns:
        Whether everything that a job on one host needs is there.
    """
    clock = _Clock(_WHOLE + 2 * max(0.0, patience - PATIENCE))
    lacks: dict[str, _LackError] = {}
    good = True
    for look in _looks(tries, patience, clock):
        try:
            if look.needs in lacks:
                raise lacks[look.needs]
            if look.doing:
                print(f"{look.doing} ...", file=sys.stderr, flush=True)
            found = look.find()
        except _LackError as lack:
            lacks[look.name] = lack
            good = good and not look.is_needed
            found = f"no: {lack}"
        print(f"{look.name:<24}{found}", flush=True)
    return good


def _looks(tries: bool, patience: float, clock: _Clock) -> Iterator[_Look]:
    yield _Look("versions", _versions, is_needed=True)
    yield _Look("cores, memory, limits", _limits, is_needed=True)
    yield _Look("shared memory", _shared_memory)
    yield _Look("Open MPI", lambda: _answer(_open_mpi, clock))
    yield _Look("network", _network)
    # The tries come before torch looks for devices, because a process that has used one cannot
    # hand it to the ranks that are forked from it.
    if tries:
        yield _Look(
            "2 ranks, this host",
            lambda: _try_two_ranks({"BLUEFOG_TRANSPORT": ""}, patience, clock),
            is_needed=True,
            doing="Starting two ranks on this host",
        )
        yield _Look(
            "2 ranks, Open MPI",
            lambda: _try_two_ranks({"BLUEFOG_TRANSPORT": "mpi"}, patience, clock),
            doing="Starting two ranks that use Open MPI",
            needs="Open MPI",
        )
    yield _Look(
        "accelerator", lambda: _answer(_accelerator, clock), doing="Looking for accelerators"
    )


def _answer(look: Callable[[], str], clock: _Clock) -> str:
    """Return what a look finds, which may call a library that does not return.

    Raises:
        _LackError: the look does, or it does not end in time. Its thread goes on then.
    """
    seconds = clock.at_most(_TO_ANSWER)
    found: list[str | Exception] = []

    def run() -> None:
        try:
            found.append(look())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise _LackError(f"no answer within {round(seconds, 1):g} s")
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _versions() -> str:
    from bluefog_pg._core.loader import load

    try:
        load()
    except ImportError as error:
        raise _LackError(error) from error
    parts = {name: version(name) for name in ("bluefog-pg", "torch")}
    parts |= {"Python": platform.python_version(), "Linux": platform.release()}
    return ", ".join(f"{name} {number}" for name, number in parts.items())


def _limits() -> str:
    usable, files = len(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    free = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable")
    )
    return f"{usable} of {os.cpu_count()} cores, {free / 2**20:.1f} GiB free, {files} open files"


def _shared_memory() -> str:
    refused = _refusal(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).close())
    if refused:
        raise _LackError(f"unix sockets are refused ({refused}): ranks go over Open MPI, slower")
    told = ["yes"]
    refused = _refusal(lambda: os.close(os.memfd_create("bluefog_pg", os.MFD_ALLOW_SEALING)))
    if refused:
        told.append(f"in a file in /dev/shm or TMPDIR, since memfd_create is refused ({refused})")
    refused = _refusal(lambda: os.close(os.pidfd_open(os.getpid())))
    if refused:
        told.append(f"without pidfd_open, which is refused ({refused})")
    return ", ".join(told)


def _refusal(call: Callable[[], object]) -> str:
    """Return the system's error; empty where it lets this process make the call."""
    try:
        call()
    except OSError as error:
        return os.strerror(error.errno or 0)
    except AttributeError:  # Some builds of Python lack the function, whatever the system has.
        return ""
    return ""


def _accelerator() -> str:
    import torch

    from bluefog_pg._core.accelerator import found
    from bluefog_pg._core.loader import load

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            here = found()
        if here is None:
            raise _LackError(f"{_why_none()}; CPU tensors only")
        kernels = load().MessageKernels(here.plugin).reason
    except (ImportError, Warning, ValueError) as error:
        raise _LackError(error) from error
    told = f"{here.device} tensors over {here.backend}"
    if here.device == "cpu":
        return told
    count = f"{torch.accelerator.device_count()} of them"
    has = f"no kernels, so no windows: {kernels}" if kernels else "with kernels of ours"
    return f"{told}, {count}, {has}"


def _why_none() -> str:
    import torch

    if variables.read("BLUEFOG_ACCELERATOR"):
        return "BLUEFOG_ACCELERATOR says so"
    built = torch.version.cuda
    if built is None:
        return f"torch {torch.__version__} is built without CUDA"
    return f"torch {torch.__version__} finds no device (has it a driver for CUDA {built}?)"


def _open_mpi() -> str:
    try:
        home = mpi.find()
        library = ctypes.CDLL(home.library)
    except (RuntimeError, ImportError, OSError) as error:
        raise _LackError(error) from error
    text, length = ctypes.create_string_buffer(_LIBRARY_TEXT), ctypes.c_int()
    library.MPI_Get_library_version(text, ctypes.byref(length))
    name = text.value.decode(errors="replace").split(",")[0]
    dead = "names the dead" if hasattr(library, "MPIX_Comm_failure_ack") else "cannot name the dead"
    return f"{name}, {dead}, {home.library}"


def _network() -> str:
    found = [f"{name} {address}" for name, address in ipv4_addresses().items()]
    if all(link.startswith("lo ") for link in found):
        raise _LackError("only this host can be reached, by " + (", ".join(found) or "nothing"))
    return ", ".join(found)


def _try_two_ranks(settings: dict[str, str], patience: float, clock: _Clock) -> str:
    """Let two new processes average over a group of their own, with these environment variables.

    They are forks of this process, so what takes longest has been imported before.

    Raises:
        _LackError: they fail, or do not end within `patience` seconds or the report's time.
    """
    try:
        for module in _IMPORTED_BEFORE:
            importlib.import_module(module)
    except ImportError as error:
        raise _LackError(error) from error
    begun, seconds = time.monotonic(), clock.at_most(patience)
    try:
        forks.run(selftest.average, 2, seconds, settings)
    except TimeoutError as error:
        raise _LackError(
            f"no answer within {round(seconds, 1):g} s (where the machine is only busy, give them "
            "more time: --timeout 60)"
        ) from error
    except forks.RankError as error:
        raise _LackError(error) from error
    return f"right results in {time.monotonic() - begun:.1f} s"
