"""This server forks ranks from a process that has imported what they need, which takes seconds.

Each rank is a process of its own all the same. The process that forks has no thread, no process
group, and nothing of bluefog running.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import hosts, inrank

if TYPE_CHECKING:
    from typing import Self

ANSWER = 64  # The answer has at most this many bytes.
REQUEST = 1 << 17
# The first step of any torch.optim.Optimizer imports torch._dynamo, which takes longer than torch.
# bluefog_pg.torch imports all of the package that is Python; each rank loads the compiled module.
# Then come the modules that tests import: the functions that ranks run lie in tests.
WARM = (
    *("torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.fsdp"),
    *("torch.distributed.optim", "bluefog_pg.torch"),
    *("pytest", "hypothesis", "networkx", "tests.support.harness"),
)


class Fork:
    """A Fork is a forked process, with the methods of subprocess.Popen that the harness uses.

    It owns the socket over which the parent says how the process ended.
    """

    def __init__(self, line: socket.socket) -> None:
        """Take the socket that says the process's pid now, and its exit code when it has one."""
        self._line = line
        self.pid = int(line.recv(ANSWER))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = int(self._line.recv(ANSWER) or -signal.SIGKILL)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("fork", timeout or 0.0) from None
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Parent:
    """A Parent is the process that forks ranks.

    It ends with this process, which owns its socket.
    """

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | Fork) -> None:
        self._control, self._process = control, process
        self.pid = process.pid

    @classmethod
    def start(cls, env: dict[str, str]) -> Self:
        """Start a process that imports WARM."""
        control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env=env, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                start_new_session=True, cwd=Path(__file__).parents[2],
            )  # fmt: skip
        return cls(control, process)

    def with_modules(self, modules: Sequence[str]) -> Parent:
        """Fork a Parent that imports these modules, too, and forks ranks in its turn."""
        control, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            return Parent(control, self._fork(modules, theirs.fileno()))

    def fork(self, env: dict[str, str], fd: int, out: Path, host: str) -> Fork:
        """Fork a rank with this environment and `fd` as its RANKS_FD, on `host` if there is one.

        Its output goes to the file `out`. The settings that torch reads on import are those of the
        parent's environment, not of `env`.
        """
        return self._fork((env, str(out), host), fd)

    def _fork(self, request: object, fd: int) -> Fork:
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        try:
            with theirs:
                socket.send_fds(self._control, [pickle.dumps(request)], [fd, theirs.fileno()])
            return Fork(ours)
        except (OSError, ValueError) as error:
            raise RuntimeError(
                f"the fork server (pid {self.pid}) has ended, and no rank can be made any more: "
                "see the output of the first test that failed"
            ) from error


class Forking:
    """A Forking serves requests in the parent: it forks, and owns what watches the forks."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._events = selectors.DefaultSelector()
        self._events.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Fork, and report the ends of forks, until the other side is gone.

        Each fork returns, too.
        """
        while True:
            for event, _ in self._events.select():
                if event.fileobj is not self._control:
                    self._tell_of_end(event)
                    continue
                request, fds, *_ = socket.recv_fds(self._control, REQUEST, 2)
                if not request:
                    return
                line = socket.socket(fileno=fds[1])
                pid = os.fork()
                if pid == 0:
                    line.close()
                    self._leave()
                    match pickle.loads(request):
                        case (dict() as env, out, host):
                            become(env, out, host, fds[0])
                            inrank.main()
                        case modules:
                            serve(modules, fds[0])
                    return
                os.close(fds[0])
                line.send(str(pid).encode())
                self._events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, line))

    def _tell_of_end(self, event: selectors.SelectorKey) -> None:
        pid, line = event.data
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._events.unregister(event.fileobj)
        os.close(event.fd)
        with line, contextlib.suppress(OSError):
            line.send(str(code).encode())

    def _leave(self) -> None:
        """Close what belongs to the parent alone. A fork calls this."""
        for event in list(self._events.get_map().values()):
            if event.fileobj is not self._control:
                os.close(event.fd)
                event.data[1].close()
        self._events.close()
        self._control.close()


def become(env: dict[str, str], out: str, host: str, fd: int) -> None:
    """Make this process look as if it had been started with this environment, output and host."""
    os.setsid()
    written = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(written, number)
    os.close(written)
    if host:
        hosts.enter(host)
    os.environ.clear()
    os.environ.update(env | {"RANKS_FD": str(fd), "RANKS_PARENT": str(os.getppid())})
    own = env["PYTHONPATH"].split(os.pathsep)
    sys.path[:0] = [path for path in own if path not in sys.path]
    tempfile.tempdir = None


def serve(modules: Sequence[str], control: int) -> None:
    """Import these modules, and fork from then on."""
    inrank.die_with(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # Otherwise each fork would copy the memory that its garbage collector looks at.
    Forking(socket.socket(fileno=control)).serve()


if __name__ == "__main__":
    serve(WARM, int(sys.argv[1]))
