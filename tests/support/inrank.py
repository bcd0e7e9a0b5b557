"""This side of the harness runs in a rank: it receives functions, marks points, waits at gates."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import importlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

DEVICE = os.environ.get("RANKS_DEVICE", "")
# Sanitizer builds and slow machines stretch every limit by one factor; nothing is ever retried.
SLOW = float(os.environ.get("BLUEFOG_TEST_SLOW", "1"))


@dataclass(frozen=True)
class Task:
    """A Task is one function for every rank.

    With a new `store`, ranks leave their group and join one.
    """

    function: str
    args: tuple[Any, ...] = ()
    world: int = 0  # 0 means that the function initializes the process group itself.
    store: str = ""
    timeout: float = 30.0


# A rank is sent one of these in place of a task. It then ends as any program does, or at once. The
# latter skips what the interpreter does at its end, which takes a second where torch is loaded.
LEAVE, LEAVE_AT_ONCE = None, "leave at once"


@dataclass(frozen=True)
class Raised:
    """A Raised is an exception as plain data, to judge without the backend's classes."""

    kind: str
    kinds: tuple[str, ...]
    text: str
    ranks: tuple[int, ...] | None
    began: float
    ended: float

    def took(self, since: float | None = None) -> float:
        return self.ended - (self.began if since is None else max(since, self.began))


@dataclass
class Footprint:
    """A Footprint is what the process holds. A leak shows as a difference of two of them."""

    threads: int
    fds: Counter[str] = field(default_factory=Counter)
    memfd_maps: int = 0


def directory() -> Path:
    return Path(os.environ["RANKS_DIR"])


def mark(point: str) -> None:
    """Tell the parent (and the other ranks) that this rank has reached `point`."""
    (directory() / f"at.{point}.{os.environ['RANK']}").touch()


def await_file(name: str, limit: float = 30.0) -> None:
    limit *= SLOW
    end = time.monotonic() + limit
    path = directory() / name
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"nobody created {name} within {limit} s")
        time.sleep(0.002)


def has_met(point: str, world: int) -> bool:
    """Return whether every rank has reached `point`, without waiting for any."""
    return all((directory() / f"at.{point}.{rank}").exists() for rank in range(world))


def gate(name: str, limit: float = 30.0) -> None:
    """Wait until the parent calls `ranks.open(name)`."""
    await_file(f"gate.{name}", limit)


def meet(point: str, world: int, limit: float = 30.0) -> None:
    """Wait for all ranks through the file system, which does not depend on what is under test."""
    mark(point)
    for rank in range(world):
        await_file(f"at.{point}.{rank}", limit)


def catch(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Raised | None:
    began = time.monotonic()
    try:
        call(*args, **kwargs)
    except BaseException as error:
        ended = time.monotonic()
        ranks = getattr(error, "ranks", None)
        return Raised(
            kind=type(error).__name__,
            kinds=tuple(c.__name__ for c in type(error).__mro__),
            text=str(error),
            ranks=None if ranks is None else tuple(int(r) for r in ranks),
            began=began,
            ended=ended,
        )
    return None


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    """Return what the call returns, or a Raised of what it raises."""
    outs = list[Any]()
    return catch(lambda: outs.append(call(*args))) or outs[0]


@contextlib.contextmanager
def interrupted_in(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt after that time, unless the block has ended."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Yield the list of what bluefog_pg's logger is told meanwhile."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logger = logging.getLogger("bluefog_pg")
    logger.addHandler(handler)
    try:
        yield told
    finally:
        logger.removeHandler(handler)


def in_threads(count: int, body: Callable[[int], Any], limit: float = 30.0) -> list[str]:
    """Run body(i) in as many threads; return what they raised, and which ones hang."""
    bad: list[str] = []

    def guarded(i: int) -> None:
        error = catch(body, i)
        if error:
            bad.append(f"thread {i}: {error.kind}: {error.text}")

    threads = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(count)]
    for t in threads:
        t.start()
    end = time.monotonic() + limit * SLOW
    for t in threads:
        t.join(max(0.0, end - time.monotonic()))
    return bad + [f"thread {i} hangs" for i, t in enumerate(threads) if t.is_alive()]


def init(store: str, rank: int, world: int, timeout: float = 30.0) -> None:
    dist.init_process_group(
        f"cpu:bluefog,{DEVICE}:bluefog" if DEVICE else "bluefog",
        init_method=f"file://{directory() / store}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout),
    )


def footprint() -> Footprint:
    fds: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        try:
            fds[os.readlink(f"/proc/self/fd/{fd}").split(":")[0].split(" ")[0]] += 1
        except OSError:  # This is the descriptor that listdir itself had.
            continue
    maps = Path("/proc/self/maps").read_text()
    return Footprint(len(os.listdir("/proc/self/task")), fds, maps.count("/memfd:"))


def rss() -> int:
    """Return the bytes in memory, without the freed blocks that the heap keeps.

    The heap may keep as much as twice the largest block.
    """
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resolve(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def barrier(rank: int, world: int) -> None:
    dist.barrier()


def destroy(_rank: int, _world: int) -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def use_device(kind: str) -> None:
    from tests.support import on_device

    on_device.DEVICES[kind]()
    torch.set_default_device(kind)


def serve(conn: Connection, rank: int) -> str | None:
    """Do the tasks that come, and return how the process is to end then."""
    if DEVICE:
        use_device(DEVICE)
    store = ""
    while True:
        try:
            task: Task | str | None = conn.recv()
        except EOFError:
            return LEAVE
        if not isinstance(task, Task):
            return task
        try:
            if task.world and task.store != store:
                destroy(rank, task.world)
                init(task.store, rank, task.world, task.timeout)
                store = task.store
            value = resolve(task.function)(rank, task.world or world_size(), *task.args)
            conn.send(("value", value))
        except BaseException:
            conn.send(("error", traceback.format_exc()))


def world_size() -> int:
    return int(os.environ["WORLD_SIZE"])


def die_with(parent: int) -> None:
    """End this process when its parent ends, whatever kills that one."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def main() -> None:
    die_with(int(os.environ["RANKS_PARENT"]))
    # A shell's background jobs ignore SIGINT, and with them all tests that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    conn = Connection(int(os.environ["RANKS_FD"]))
    how = serve(conn, int(os.environ["RANK"]))
    if os.environ.get("RANKS_DESTROY") == "1" and dist.is_initialized():
        dist.destroy_process_group()
    conn.close()
    # Coverage is written only when a program ends as programs do.
    if how == LEAVE_AT_ONCE and "COVERAGE_RUN" not in os.environ:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
