"""This harness starts real ranks, ships functions to them, signals them, and shows stacks of hangs.

`pool.run(body, args..., world=3)` runs a body on a kept pool, where nothing breaks the processes.
`with Ranks(4) as ranks: ranks.start(body); ranks.kill(2); ranks.join()` is for faults.

A body is a module-level function `body(rank, world, *args)`; what it returns comes back by pickle.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import hosts as network
from tests.support import inrank
from tests.support.environment import ACCELERATOR, COMPILED, DEVICE, STRETCH, TRANSPORT, environment
from tests.support.fork_server import Fork, Parent
from tests.support.inrank import SLOW, Raised, Task
from tests.support.processes import stacks

if TYPE_CHECKING:
    from typing import Self


def at_most(seconds: float) -> float:
    """Return how many seconds a test grants what takes `seconds` on a machine of its own."""
    return seconds * STRETCH


HEARD = 1.0 * SLOW  # seconds until every rank concerned has heard of a death
WITHIN = at_most(1.0)  # the longest time that a test accepts for hearing of a death
LEAK_NAMES = ("bluefog", "ompi", "prte", "pmix")


def of_the_cpus_engine(why: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(ACCELERATOR != "", reason=f"on an accelerator {why}")


def of_the_cpus_memory(why: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(DEVICE != "", reason=f"on a device {why}")


class RankFailure(AssertionError):
    """A rank raised or died when it should not have. The text says what happened to every rank."""


class Hang(RankFailure):
    """The deadline passed. The text holds the stacks of every rank."""


@dataclass
class Outcome:
    rank: int
    value: Any = None
    error: str | None = None
    # This is Popen's returncode: negative after a signal, and None while the rank lives.
    exit: int | None = None
    done: bool = False


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


# A fork of the server cannot collect what the server has frozen. Triton, which comes with a torch
# that was built for CUDA and is imported by torch._dynamo, calls that a leak when the rank ends.
_OF_TRITON = re.compile(r"(?:^nanobind: .*\n|^ - .*\n)+^See https://nanobind.*\n?", re.MULTILINE)
LIVING: set[Ranks] = set()
PARENTS: list[Parent] = []


@functools.cache
def parent(modules: tuple[str, ...]) -> Parent:
    """Return the process whose forks are the ranks of all tests that need these modules."""
    if modules:
        made = parent(()).with_modules(modules)
    else:
        COMPILED.mkdir(parents=True, exist_ok=True)
        made = Parent.start(environment({"TMPDIR": str(COMPILED)}))
    PARENTS.append(made)
    return made


class Ranks:
    """A Ranks owns n processes, and for each a pipe, a log file, and a shared TMPDIR.

    Files of bluefog or MPI that the ranks leave in TMPDIR are leaks. One thread uses a Ranks.
    """

    def __init__(
        self,
        n: int,
        *,
        env: dict[str, str] | None = None,
        destroy: bool = False,
        hosts: Sequence[str] = (),
        modules: tuple[str, ...] = (),
    ) -> None:
        """Start the processes.

        `hosts` are network namespaces, which the ranks fill one after the other. `modules` are what
        the ranks have imported when they begin.
        """
        self.n = n
        self.dir = Path(tempfile.mkdtemp(prefix="ranks-"))
        (self.dir / "tmp").mkdir()
        self.procs: list[Fork] = []
        self.conns: list[Connection] = []
        self.outcomes = [Outcome(r) for r in range(n)]
        common = {"RANKS_DIR": str(self.dir), "TMPDIR": str(self.dir / "tmp"), "WORLD_SIZE": str(n)}
        common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        common |= {"RANKS_DESTROY": "1" if destroy else "0"}
        self.busy: set[int] = set()
        self.signaled: set[int] = set()
        LIVING.add(self)
        try:
            for rank in range(n):
                self._make(rank, common, env or {}, network.host_of(hosts, rank, n), modules)
        except BaseException:
            self.close(judge=False)
            raise

    def _make(
        self,
        rank: int,
        common: dict[str, str],
        env: dict[str, str],
        host: str,
        modules: tuple[str, ...],
    ) -> None:
        ours, theirs = socket.socketpair()
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        # Networks of hosts come and go with tests that run beside this one, so ranks use this one
        # only.
        interface = "eth0" if host else "lo"
        own |= {"GLOO_SOCKET_IFNAME": interface, "OMPI_MCA_btl_tcp_if_include": interface}
        self.conns.append(Connection(ours.detach()))
        with theirs:
            of_rank = environment(common | own | env)
            log = self.dir / f"out.{rank}"
            self.procs.append(parent(modules).fork(of_rank, theirs.fileno(), log, host))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(judge=kind is None)

    # -- work ------------------------------------------------------------------------------------
    def start(
        self,
        body: Callable[..., Any],
        *args: Any,
        world: int = 0,
        store: str = "",
        timeout: float = 30,
    ) -> None:
        """Ship `body` to the first `world` ranks. 0 ships it to all, without a process group."""
        task = Task(f"{body.__module__}:{body.__qualname__}", args, world, store, timeout)
        for rank in range(world or self.n):
            self.give(rank, task)

    def give(self, rank: int, task: Task) -> None:
        self.outcomes[rank] = Outcome(rank)
        self.busy.add(rank)
        self.conns[rank].send(task)

    def join(self, limit: float = 60, dead: Iterable[int] = ()) -> list[Outcome]:
        """Wait for every rank at work. The ranks `dead` may die without an answer."""
        end = time.monotonic() + limit * SLOW
        while self.busy:
            left = end - time.monotonic()
            if left <= 0:
                raise Hang(self.story(f"ranks {sorted(self.busy)} gave no answer in {limit} s"))
            wait([self.conns[r] for r in self.busy], min(left, 0.1))
            for rank in sorted(self.busy):
                self._collect(rank)
        self._judge(set(dead))
        return self.outcomes

    def _collect(self, rank: int) -> None:
        outcome, code = self.outcomes[rank], self.procs[rank].poll()
        try:
            if self.conns[rank].poll():
                kind, value = self.conns[rank].recv()
                outcome.done = True
                outcome.value = value if kind == "value" else None
                outcome.error = value if kind == "error" else None
                self.busy.discard(rank)
                return
        except (EOFError, ConnectionResetError):
            code = self.procs[rank].wait()
        if code is not None:
            outcome.exit = code
            self.busy.discard(rank)

    def _judge(self, dead: set[int]) -> None:
        bad = [
            o.rank for o in self.outcomes if o.error or (o.exit is not None and o.rank not in dead)
        ]
        if bad:
            raise RankFailure(self.story(f"ranks {bad} failed", native=False))

    def values(self, limit: float = 60, dead: Iterable[int] = ()) -> dict[int, Any]:
        return {o.rank: o.value for o in self.join(limit, dead) if o.done}

    def answer(self, rank: int, limit: float = 30) -> Any:
        """Wait for one rank's answer, and return it."""
        end = time.monotonic() + limit * SLOW
        while rank in self.busy:
            if time.monotonic() > end:
                raise Hang(self.story(f"rank {rank} gave no answer in {limit} s"))
            wait([self.conns[rank]], 0.1)
            self._collect(rank)
        if not self.outcomes[rank].done or self.outcomes[rank].error:
            raise RankFailure(self.story(f"rank {rank} failed", native=False))
        return self.outcomes[rank].value

    def dismiss(self, rank: int) -> int:
        """Let one process end by itself, and return its exit code."""
        self.conns[rank].send(inrank.LEAVE)
        return self.procs[rank].wait(10 * SLOW)

    def leave(self) -> dict[int, int]:
        """Let the processes end by themselves, and return their exit codes."""
        self._dismiss_all(inrank.LEAVE)
        end = time.monotonic() + 10 * SLOW
        try:
            return {r: p.wait(max(0.01, end - time.monotonic())) for r, p in enumerate(self.procs)}
        except subprocess.TimeoutExpired:
            alive = [r for r, p in enumerate(self.procs) if p.poll() is None]
            raise Hang(self.story(f"ranks {alive} did not exit within 10 s")) from None

    def _dismiss_all(self, how: str | None) -> None:
        for conn in self.conns:
            with contextlib.suppress(OSError):
                conn.send(how)
            with contextlib.suppress(OSError):
                conn.close()

    # -- faults ----------------------------------------------------------------------------------
    def send(self, rank: int, number: int) -> float:
        """Send a signal to a rank, and return when, on the ranks' clock, CLOCK_MONOTONIC."""
        instant = time.monotonic()
        self.signaled.add(rank)
        self.procs[rank].send_signal(number)
        return instant

    kill = functools.partialmethod(send, number=signal.SIGKILL)
    cont = functools.partialmethod(send, number=signal.SIGCONT)
    interrupt = functools.partialmethod(send, number=signal.SIGINT)

    def stop(self, rank: int) -> float:
        """Send SIGSTOP, and return when all the rank's threads have stopped.

        One of the threads takes the signal. Until that one gets a core, the others run on.
        """
        instant = self.send(rank, signal.SIGSTOP)
        tasks = Path(f"/proc/{self.procs[rank].pid}/task")
        end = time.monotonic() + 10 * SLOW
        while not all(re.search(r"\) [Tt] ", stat.read_text()) for stat in tasks.glob("*/stat")):
            if time.monotonic() > end:
                raise Hang(self.story(f"rank {rank} does not stop"))
            time.sleep(0.001)
        return instant

    def at(self, point: str, *ranks: int, limit: float = 40) -> None:
        """Wait until `ranks`, or all if none is named, have called `mark(point)`."""
        end = time.monotonic() + limit * SLOW
        for rank in ranks or range(self.n):
            while not (self.dir / f"at.{point}.{rank}").exists():
                if self.conns[rank].poll() or self.procs[rank].poll() is not None:
                    self._collect(rank)
                    if not (self.dir / f"at.{point}.{rank}").exists():
                        raise RankFailure(self.story(f"rank {rank} ended before point {point!r}"))
                if time.monotonic() > end:
                    raise Hang(self.story(f"rank {rank} did not reach {point!r} in {limit} s"))
                time.sleep(0.002)

    def open(self, gate: str) -> None:
        (self.dir / f"gate.{gate}").touch()

    def forget_points(self) -> None:
        """Delete marks and open gates, so that the same test can run again on the same ranks."""
        for path in (*self.dir.glob("at.*"), *self.dir.glob("gate.*")):
            path.unlink()

    # -- telling and cleaning --------------------------------------------------------------------
    def output(self, rank: int) -> str:
        return _OF_TRITON.sub("", (self.dir / f"out.{rank}").read_text(errors="replace"))

    def story(self, headline: str, native: bool = True) -> str:
        alive = [p for p in self.procs if p.poll() is None]
        seen = ""
        if native:
            for p in alive:
                p.send_signal(signal.SIGUSR1)
            time.sleep(0.3)
            seen = stacks(self.procs[r].pid for r in self.busy if self.procs[r] in alive)
        parts = [headline]
        for o in self.outcomes:
            state = (
                f"exit {self.procs[o.rank].poll()}"
                if self.procs[o.rank].poll() is not None
                else "alive"
            )
            parts.append(
                f"=== rank {o.rank} ({state})\n{o.error or ''}{self.output(o.rank)[-6000:]}"
            )
        return "\n".join([*parts, seen])

    def close(self, judge: bool = True) -> None:
        """End all ranks, by force if they are at work, and check that they leave no file.

        Where `judge` is set, a rank that has answered and was sent no signal must end in time, and
        well: nobody else would see a crash or a hang of what the library does when a process ends.
        """
        idle = [r for r in range(len(self.procs)) if self.procs[r].poll() is None]
        idle = [r for r in idle if r not in self.busy | self.signaled]
        self._dismiss_all(inrank.LEAVE_AT_ONCE)
        end = time.monotonic() + at_most(5)
        for rank in idle:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.procs[rank].wait(max(0.0, end - time.monotonic()))
        codes = {rank: self.procs[rank].poll() for rank in idle}
        well = all(code == 0 or self._aborted_in_gloo(rank) for rank, code in codes.items())
        story = "" if well else self.story(f"exit codes of ranks, None for a hang: {codes}")
        end = time.monotonic() + 3 * SLOW
        while self._leaks() and not self.busy and time.monotonic() < end:
            time.sleep(0.01)  # bluefog-pmixd outlives its ranks for a moment.
        for p in self.procs:
            with contextlib.suppress(ProcessLookupError):
                # A rank leads its own session, so its workers end, too.
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
        LIVING.discard(self)
        left = self._leaks()
        shutil.rmtree(self.dir, ignore_errors=True)
        if judge and story:
            raise RankFailure(story)
        assert not left, f"left in TMPDIR: {left}"

    def _aborted_in_gloo(self, rank: int) -> bool:
        """Return whether torch's gloo aborted the process because its peers had left before it."""
        return self.procs[rank].poll() == -signal.SIGABRT and "gloo::" in self.output(rank)

    def _leaks(self) -> list[str]:
        return [name for name in os.listdir(self.dir / "tmp") if name.startswith(LEAK_NAMES)]


class Pool:
    """A Pool keeps ranks over a module.

    After any failure it ends them, and the next call starts new ones.
    """

    def __init__(self, n: int) -> None:
        self.n, self.lives = n, 0
        self.ranks: Ranks | None = None
        self.world, self.store = 0, ""

    def run(
        self, body: Callable[..., Any], *args: Any, world: int | None = None, timeout: float = 60
    ) -> list[Any]:
        world = self.n if world is None else world
        try:
            ranks = self._ranks_with_group(world, timeout)
            ranks.forget_points()
            ranks.start(body, *args, world=world, store=self.store)
            return [o.value for o in ranks.join(timeout)[:world]]
        except BaseException:
            self.discard(judge=False)
            raise

    def _ranks_with_group(self, world: int, timeout: float) -> Ranks:
        if self.ranks is None:
            self.ranks, self.world = Ranks(self.n, destroy=True), 0
            if TRANSPORT == "mpi":  # Open MPI's world must be the first group.
                self.ranks.start(inrank.barrier, world=self.n, store="all")
                self.ranks.join(timeout)
        if world != self.world:
            self.lives += 1
            self.world, self.store = world, f"store.{self.lives}"
            # Ranks that are left out must not keep the old group.
            for rank in range(world, self.n):
                self.ranks.give(rank, Task("tests.support.inrank:destroy"))
                self.ranks.answer(rank, timeout)
        return self.ranks

    def dead(self) -> list[int]:
        """Return the ranks that have ended, which none should while the pool keeps them."""
        procs = self.ranks.procs if self.ranks else []
        return [rank for rank, proc in enumerate(procs) if proc.poll() is not None]

    def story(self) -> str:
        """Return which ranks have ended, and what every rank has printed."""
        headline = f"ranks {self.dead()} ended while they were kept"
        return self.ranks.story(headline, native=False) if self.ranks else headline

    def discard(self, judge: bool = True) -> None:
        if self.ranks is not None:
            ranks, self.ranks = self.ranks, None
            ranks.close(judge)


def run_ranks(
    body: Callable[..., Any],
    n: int,
    *args: Any,
    world: int | None = None,
    env: dict[str, str] | None = None,
    hosts: Sequence[str] = (),
    limit: float = 60,
) -> list[Any]:
    """Run one body in fresh processes; raise with every rank's traceback unless all return."""
    with Ranks(n, env=env, hosts=hosts) as ranks:
        ranks.start(body, *args, world=n if world is None else world, store="store")
        return [o.value for o in ranks.join(limit)]


def await_that(is_so: Callable[[], bool], limit: float = 30 * SLOW) -> None:
    """Wait until `is_so()`, for at most `limit` seconds."""
    end = time.monotonic() + limit
    while not is_so():
        assert time.monotonic() < end, f"not so within {limit} s"
        time.sleep(0.01)


def raised(value: Any, kind: str, *, ranks: Iterable[int] | None = None, text: str = "") -> Raised:
    """Return `value`, which must be an error of class `kind` that blames `ranks`, with `text`."""
    assert isinstance(value, Raised), f"nothing raised: {value!r}"
    assert kind in value.kinds, f"{value.kind}: {value.text}"
    if ranks is not None:
        assert value.ranks is not None, value
        assert set(value.ranks) == set(ranks), f"blames {value.ranks}: {value.text}"
    assert text in value.text, value.text
    return value
