"""This module starts a job's ranks on all of its hosts, and waits until they have ended."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING

from bluefog_pg.launch.networks import ipv4_of
from bluefog_pg.launch.runner.agent import POLL_EVERY
from bluefog_pg.launch.runner.hosts import Host, is_here, spread
from bluefog_pg.launch.runner.local_ranks import LocalRanks
from bluefog_pg.launch.runner.remote_ranks import RemoteRanks
from bluefog_pg.launch.runner.share import Exit, Share

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

_TO_SAY_WHY = 1.0  # seconds in which ranks may say that they miss one that has ended
_ENDED_BY_SIGNAL = 128  # A shell adds this to the signal's number.
_TO_END_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Job:
    """A Job is a program that runs as `size` ranks on these hosts."""

    command: list[str]
    folder: str
    environ: dict[str, str]
    size: int
    hosts: Sequence[Host]
    interface: str | None  # the network by which other hosts reach this one; None: by its route
    ssh_port: int | None
    keeps_going: bool
    say: Callable[[str], None]

    def run(self) -> int:
        """Start the ranks, wait until they have ended, and return the exit code to end with.

        Raises:
            ValueError: the job cannot be started.
        """
        from torch.distributed.elastic.multiprocessing import SignalException

        places = list(spread(self.hosts, self.size))
        here = [is_here(host.name) for host, _ in places]
        address = "127.0.0.1"
        if not all(here):
            others = [
                host.name for (host, _), is_local in zip(places, here, strict=True) if not is_local
            ]
            address = own_address(self.interface, others[0], self.ssh_port)
        store = _store(address)
        environ = self.environ | _rendezvous(address, store.port)
        parts: list[LocalRanks | RemoteRanks] = []
        # Torch does the same when it starts ranks, of which this host may have none.
        for number in _TO_END_BY:
            signal.signal(number, _raise_signal)
        try:
            for node, ((host, ranks), is_local) in enumerate(zip(places, here, strict=True)):
                share = Share(
                    self.command, self.folder, environ, ranks.start, len(ranks), self.size, node,
                    len(places),
                )  # fmt: skip
                if is_local:
                    parts.append(LocalRanks(share))
                else:
                    parts.append(RemoteRanks(host.name, self.ssh_port, share))
            return self._wait(parts)
        except SignalException as error:
            self.say(f"{error.sigval.name}: stopping all ranks")
            self._stop(parts, error.sigval)
            return _ENDED_BY_SIGNAL + error.sigval
        finally:
            self._stop(parts)

    def _wait(self, parts: list[LocalRanks | RemoteRanks]) -> int:
        ended: list[Exit] = []
        until: float | None = None  # when all are stopped
        code = 0
        while any(part.running() for part in parts):
            try:
                new = [each for part in parts for each in part.poll()]
            except ConnectionError as error:
                self.say(str(error))
                return 1
            for each in new:
                if each.code:
                    self.say(str(each))
                    code = code or _shell_code(each.code)
                    until = until or time.monotonic() + _TO_SAY_WHY
            ended += new
            if until and not self.keeps_going and time.monotonic() > until:
                left = [rank for part in parts for rank in part.running()]
                self.say(f"stopping ranks {', '.join(map(str, sorted(left)))}")
                return code
            time.sleep(POLL_EVERY)
        if self.keeps_going and any(each.code == 0 for each in ended):
            return 0
        return code

    def _stop(
        self, parts: list[LocalRanks | RemoteRanks], by: signal.Signals = signal.SIGTERM
    ) -> None:
        # A further signal would cut this short, and leave ranks behind.
        for number in _TO_END_BY:
            signal.signal(number, signal.SIG_IGN)
        for part in parts:
            part.stop(by)


def _raise_signal(number: int, _frame: FrameType | None) -> None:
    from torch.distributed.elastic.multiprocessing import SignalException

    raise SignalException(f"signal {number}", sigval=signal.Signals(number))


def own_address(interface: str | None, other: str, port: int | None) -> str:
    """Return this machine's address on that interface, or on the route to the other host."""
    if interface:
        try:
            return ipv4_of(interface)
        except OSError as error:
            raise ValueError(f"interface {interface!r}: {error.strerror}") from error
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, port or 22))  # This sends nothing.
        return str(probe.getsockname()[0])


def _store(address: str) -> TCPStore:
    """Return the store where the ranks meet. It lives here, so it survives any of them."""
    from torch._C._distributed_c10d import TCPStore

    # The store would listen on all networks, and anybody who reaches it can write there.
    listener = socket.create_server((address, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        address, port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60),
        master_listen_fd=listener.detach(),
    )  # fmt: skip


def _rendezvous(address: str, port: int) -> dict[str, str]:
    """Return what tells `init_process_group` that the store is there, as torchrun does."""
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "bfrun",
    }


def _shell_code(code: int) -> int:
    return code if code > 0 else _ENDED_BY_SIGNAL - code
