"""This module says what the machine offers, and whether two ranks get right results on it."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from bluefog_pg._core import variables
from bluefog_pg.launch import mpi
from bluefog_pg.launch.networks import ipv4_addresses

_DEADLINE = 60.0  # the seconds that two ranks may take
_LIBRARY_TEXT = 8192  # more than MPI_MAX_LIBRARY_VERSION_STRING


class _LackError(Exception):
    """A _LackError says what is missing, and what to do about it."""


def report(tries: bool) -> bool:
    """Print what the machine offers, line by line; `tries` asks for tests with two ranks, too.

    Returns:
        Whether everything that a job on one host needs is there.
    """
    good = True
    for name, look, is_needed in _looks(tries):
        try:
            found = look()
        except _LackError as lack:
            good = good and not is_needed
            found = f"no: {lack}"
        print(f"{name:<24}{found}", flush=True)
    return good


def _looks(tries: bool) -> Iterator[tuple[str, Callable[[], str], bool]]:
    yield "versions", _versions, True
    yield "cores, memory, limits", _limits, True
    yield "shared memory", _shared_memory, False
    yield "accelerator", _accelerator, False
    yield "Open MPI", _open_mpi, False
    yield "network", _network, False
    if tries:
        yield "2 ranks, this host", lambda: _try_two_ranks({"BLUEFOG_TRANSPORT": ""}), True
        yield "2 ranks, Open MPI", _try_mpi, False


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


def _try_mpi() -> str:
    _open_mpi()
    return _try_two_ranks({"BLUEFOG_TRANSPORT": "mpi"})


def _try_two_ranks(settings: dict[str, str]) -> str:
    """Let two new processes average over a group of their own, with these environment variables.

    Raises:
        _LackError: they fail, or do not end in time.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bluefog-doctor-") as folder:
        ranks = [
            subprocess.Popen(  # noqa: S603 (our own module)
                [sys.executable, "-m", "bluefog_pg.tools.selftest", f"{folder}/store", str(rank)],
                env=os.environ | {"OMP_NUM_THREADS": "1"} | settings,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            said = [rank.communicate(timeout=_DEADLINE)[1] for rank in ranks]
        except subprocess.TimeoutExpired as error:
            raise _LackError(f"two ranks did not end within {_DEADLINE:.0f} s") from error
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    for rank, text in zip(ranks, said, strict=True):
        if rank.returncode:
            last = text.strip().splitlines()[-1:] or [f"exit code {rank.returncode}"]
            raise _LackError(last[0])
    return f"right results in {time.monotonic() - begun:.1f} s"
