"""What a rank says when it cannot make its group."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.messages import golden
from tests.support.messages.bodies import Calls, Labelled, caught, telling

RANKS = 1  # it plays the others too

Act = Callable[[socket.socket], Any]


class Record(NamedTuple):
    """What a rank publishes in the store."""

    version: str
    host: str
    place: str
    pid: str
    socket: str
    secret: str
    world: str
    world_rank: str
    number: str
    accelerator: str
    members: str


def make(store: Any, rank: int, size: int, seconds: float = 10) -> Any:
    import bluefog_pg

    opts = bluefog_pg.ProcessGroupBluefog.Options()
    opts._timeout = timedelta(seconds=seconds)
    opts.global_ranks_in_group = list(range(size))
    return bluefog_pg.ProcessGroupBluefog(store, rank, size, opts)


def own_record() -> Record:
    store = dist.HashStore()
    inrank.catch(make, store, 0, 2, 0.05)
    return Record(*store.get("bluefog/0/2/0/roster/0").decode().splitlines())


def beside(rank: int, record: tuple[str, ...], as_rank: int = 0, seconds: float = 10) -> Any:
    """Make a group of two where the store holds this record of a rank."""
    store = dist.HashStore()
    store.set(f"bluefog/0/2/0/roster/{rank}", "".join(f"{field}\n" for field in record))
    return make(store, as_rank, 2, seconds)


def without_mpi(record: Record) -> Any:
    os.environ["BLUEFOG_MPI_HOME"] = "/nowhere"
    try:
        return beside(1, record)
    finally:
        del os.environ["BLUEFOG_MPI_HOME"]


def opposite(record: Record, act: Act, seconds: float = 10) -> Any:
    """Make a group as its rank 1, where rank 0 is linked to, and then does this."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        name = "bluefog-of-tests-" + os.urandom(8).hex()
        listener.bind("\0" + name)
        listener.listen()

        def serve() -> None:
            there, _ = listener.accept()
            with there:
                there.recv(200)
                act(there)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return beside(0, record._replace(socket=name, secret="secret"), 1, seconds)
        finally:
            thread.join()


@contextmanager
def no_files_left() -> Iterator[None]:
    """Every file descriptor is in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def make_without_files(size: int) -> Any:
    store = dist.HashStore()
    with no_files_left():
        return make(store, 0, size)


def leaves(there: socket.socket) -> None:
    pass


def stays(there: socket.socket) -> None:
    with suppress(OSError):
        there.recv(1)  # until the other has closed


def gives_wrong_memory(there: socket.socket) -> None:
    fd = os.memfd_create("wrong")
    socket.send_fds(there, [b"f"], [fd])
    os.close(fd)
    stays(there)


def gives_no_room(there: socket.socket) -> None:
    with no_files_left():
        socket.send_fds(there, [b"f"], [0])
        there.recv(200)  # that the other gives up


def says(text: bytes) -> Act:
    return lambda there: there.send(text)


def bad_sizes_and_times() -> Calls:
    new = dist.HashStore
    return {
        "no rank": lambda: make(new(), 0, 0),
        "257 ranks": lambda: make(new(), 0, 257),
        "rank 5 of 2": lambda: make(new(), 5, 2),
        "rank -1": lambda: make(new(), -1, 2),
        "no time": lambda: make(new(), 0, 2, 0),
        "nobody comes": lambda: make(new(), 0, 2, 0.3),
        "nobody comes to rank 2": lambda: make(new(), 2, 4, 0.05),
    }


def bad_records(own: Record) -> Calls:
    gone = subprocess.Popen(["true"])
    gone.wait()
    return {
        "no record": lambda: beside(1, ("what", "is", "this")),
        "another version": lambda: beside(1, own._replace(version="7.6.5")),
        "another host, no MPI": lambda: without_mpi(own._replace(host="far", place="away")),
        "died before": lambda: beside(1, own._replace(pid=str(gone.pid))),
        "gave up before": lambda: beside(1, own),
        "another process of this rank": lambda: beside(0, own._replace(pid=str(os.getppid()))),
    }


def bad_links(own: Record) -> Calls:
    no_memory = (
        b"x0 1 0\nrank 0 could not make the group: making shared memory (memfd_create): "
        b"Too many open files"
    )
    return {
        "died after": lambda: opposite(own, leaves),
        "no memory comes": lambda: opposite(own, stays, 0.5),
        "wrong memory": lambda: opposite(own, gives_wrong_memory),
        "another rank died": lambda: opposite(own, says(b"x0 1 3\nrank 3 (pid 7) died")),
        "the other found no memory": lambda: opposite(own, says(no_memory)),
        "no file for the memory": lambda: opposite(own, gives_no_room),
        "no file for own memory": lambda: make_without_files(1),
        "no file for a socket": lambda: make_without_files(2),
    }


@telling
def bad_starts(rank: int, world: int) -> Iterator[Labelled]:
    own = own_record()
    yield from caught(bad_sizes_and_times())
    yield from caught(bad_records(own))
    yield from caught(bad_links(own))


def test_messages(pool: harness.Pool) -> None:
    golden.agree("init", pool.run(bad_starts))
