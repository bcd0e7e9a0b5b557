"""This module lets ranks find each other that mpirun or srun has started.

torch's `env://` asks for RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Such a launcher sets none
of them, but it serves PMIx: there this process learns its rank, and where rank 0 has its store.
"""

from __future__ import annotations

import importlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

from bluefog_pg._core import variables
from bluefog_pg._core.loader import leaving, load
from bluefog_pg.launch.networks import ipv4_addresses

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from bluefog_pg._C import PmixClient

    Found = Iterator[tuple[Store, int, int]]

_KEY = "bluefog.store"
_PROOF = "bluefog/launcher"  # the key in rank 0's store of the token that it published by PMIx
_SLICE = timedelta(seconds=1)  # the longest wait without a look at Ctrl-C and the deadline
_CONNECT_S = 2.0
_PAUSE_S = 0.01

_asked: PmixClient | None = None
_store: Store | None = None  # serves the other ranks as long as this process lives


def register() -> None:
    """Have torch's `env://` ask the launcher for what the environment lacks."""
    # torch.distributed.rendezvous is also the name of a function in torch.distributed.
    handlers: Any = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    original = handlers["env"]

    from torch.distributed.constants import default_pg_timeout

    def handler(url: str, timeout: timedelta = default_pg_timeout, **options: Any) -> Found:
        given = {name: values[0] for name, values in parse_qs(urlparse(url).query).items()}
        if _lacks_something(given):
            _complete(given, timeout)
        yield from original(url, timeout=timeout, **options)

    handlers["env"] = handler
    leaving.append(_leave)


def _lacks_something(given: Mapping[str, str]) -> bool:
    """Return whether neither the URL (`given`) nor the environment has all that torch needs."""
    own = [v for v in ("RANK", "WORLD_SIZE") if v.lower() not in given]
    return any(v not in os.environ for v in (*own, "MASTER_ADDR", "MASTER_PORT"))


def _complete(given: Mapping[str, str], timeout: timedelta) -> None:
    """Set those of torchrun's variables that are missing.

    It is collective over the launcher's processes.

    Raises:
        RuntimeError: the variables that are set belong to another job.
    """
    # A process with another rank was not started by the launcher itself.
    _require_same(given, "RANK", os.environ["PMIX_RANK"])
    client = _client(timeout)
    _require_same(given, "WORLD_SIZE", str(client.size))
    known = {
        "RANK": client.rank,
        "WORLD_SIZE": client.size,
        "LOCAL_RANK": client.local_rank,
        "LOCAL_WORLD_SIZE": client.local_size,
    }
    for name, value in known.items():
        os.environ.setdefault(name, str(value))
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return
    if client.rank == 0:
        address, port = _serve(client, timeout)
    else:
        address, port = _find(client, timeout)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, str(port)


def _require_same(given: Mapping[str, str], name: str, launchers: str) -> None:
    found = given.get(name.lower(), os.environ.get(name, launchers))
    if found not in (launchers, "-1"):  # torch writes -1 for "not given".
        raise RuntimeError(
            f"[bluefog] {name} is {found}, but the launcher of this process says {launchers}: "
            "unset RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT if they belong to another job, "
            "or set all four"
        )


def _client(timeout: timedelta) -> PmixClient:
    global _asked
    from bluefog_pg.launch import mpi

    try:
        if not _needs_no_mpi():
            load().start_mpi(timeout)  # Open MPI does not start after another use of PMIx.
        client: PmixClient = load().PmixClient(mpi.find().pmix_library)
    except RuntimeError as error:
        raise RuntimeError(
            f"[bluefog] RANK, WORLD_SIZE, MASTER_ADDR or MASTER_PORT is not set, and the launcher "
            f"of this process (PMIX_RANK={os.environ['PMIX_RANK']}) cannot be asked: {error}"
        ) from error
    _asked = client
    return client


def _needs_no_mpi() -> bool:
    """Return whether the launcher's variables say that all its processes are on this host.

    BLUEFOG_TRANSPORT=mpi asks for MPI even there.
    """
    env = os.environ
    here = env.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    are_here = here == env["OMPI_COMM_WORLD_SIZE"] if here else env.get("SLURM_NNODES") == "1"
    return are_here and variables.read("BLUEFOG_TRANSPORT") != "mpi"


def _leave() -> None:
    """Tell the launcher that this process ends; otherwise it takes the process for crashed."""
    if "mpi4py" in sys.modules:
        return  # mpi4py finalizes MPI later, for which it needs the connection to the launcher.
    load().leave_launcher()
    if _asked is not None:
        _asked.leave()


def _serve(client: PmixClient, timeout: timedelta) -> tuple[str, int]:
    global _store
    from torch._C._distributed_c10d import TCPStore

    port = int(os.environ.get("MASTER_PORT", "0"))
    store = TCPStore(
        "127.0.0.1", port, client.size, is_master=True, timeout=timeout,
        wait_for_workers=False, multi_tenant=True,
    )  # fmt: skip
    token = secrets.token_hex(8)
    store.set(_PROOF, token)
    client.publish(_KEY, " ".join([token, str(store.port), *_own_addresses(client)]))
    _store = store
    return "127.0.0.1", store.port


def _find(client: PmixClient, timeout: timedelta) -> tuple[str, int]:
    end = time.monotonic() + timeout.total_seconds()
    told = None
    while told is None:
        if time.monotonic() > end:
            error = load().CollectiveTimeout(
                f"[bluefog] rank {client.rank}/{client.size}: rank 0 has not reached "
                f"init_process_group within {timeout.total_seconds():g} s"
            )
            error.ranks = [0]
            raise error
        told = client.look(0, _KEY, _SLICE)
        time.sleep(_PAUSE_S)
    token, port, *addresses = told.split()
    if "MASTER_ADDR" in os.environ:
        return os.environ["MASTER_ADDR"], int(port)
    while time.monotonic() < end:
        for address in addresses:
            if _is_there(address, int(port), token):
                return address, int(port)
        time.sleep(_PAUSE_S)
    raise RuntimeError(
        f"[bluefog] rank {client.rank}/{client.size}: none of rank 0's addresses leads to its "
        f"store from this host: port {port} of {', '.join(addresses)}; set MASTER_ADDR to one that "
        "does"
    )


def _is_there(address: str, port: int, token: str) -> bool:
    """Return whether rank 0's store answers at the address, and not another one on this host."""
    from torch._C._distributed_c10d import TCPStore

    try:
        socket.create_connection((address, port), _CONNECT_S).close()
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=_CONNECT_S))
        return store.get(_PROOF) == token.encode()
    except (OSError, RuntimeError):
        return False


def _own_addresses(client: PmixClient) -> list[str]:
    if "MASTER_ADDR" in os.environ:
        return [os.environ["MASTER_ADDR"]]
    if client.local_size == client.size:
        return ["127.0.0.1"]
    own = [address for address in ipv4_addresses().values() if not address.startswith("127.")]
    return [*own, os.environ.get("PMIX_HOSTNAME") or socket.gethostname()]
