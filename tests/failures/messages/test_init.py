"""A rank that cannot make its group says why in golden words."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.messages import golden
from tests.support.messages.bodies import Calls, Labeled, caught, telling

RANKS = 1  # The one rank plays the others, too.

Act = Callable[[socket.socket], Any]


class Record(NamedTuple):
    """A Record is what a rank publishes in the store."""

    version: str
    id: str
    answers: str
    host: str
    place: str
    pid: str
    pid_space: str
    made_at: str
    secret: str
    world: str
    world_rank: str
    number: str
    accelerator: str
    members: str

    def publish(self, store: dist.Store, rank: int) -> None:
        """Write the record as that rank of a group of two."""
        store.set(f"bluefog/2/rank/{rank}", self.encode())

    def encode(self) -> str:
        return "".join(f"{field}\n" for field in self)

    @classmethod
    def of(cls, store: dist.Store, rank: int) -> Record:
        """Wait for that rank's record."""
        return cls(*store.get(f"bluefog/2/rank/{rank}").decode().splitlines())


def make(store: Any, rank: int, size: int, seconds: float = 10) -> Any:
    import bluefog_pg

    opts = bluefog_pg.ProcessGroupBluefog.Options()
    opts._timeout = timedelta(seconds=seconds)
    opts.global_ranks_in_group = list(range(size))
    return bluefog_pg.ProcessGroupBluefog(store, rank, size, opts)


def own_record() -> Record:
    store = dist.HashStore()
    inrank.catch(make, store, 0, 2, 0.05)
    return Record.of(store, 0)


@contextmanager
def meanwhile(act: Callable[[], Any]) -> Iterator[None]:
    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def beside(record: Record) -> Any:
    """Make a group of two as its rank 0, where rank 1 answers with this record."""
    store = dist.HashStore()

    def answer() -> None:
        record._replace(answers=Record.of(store, 0).id).publish(store, 1)

    with meanwhile(answer):
        return make(store, 0, 2)


def beside_twin(record: Record) -> Any:
    """Make a group of two as its rank 0, while another process says that it is rank 0."""
    store = dist.HashStore()

    def replace() -> None:
        Record.of(store, 0)
        record.publish(store, 0)

    with meanwhile(replace):
        return make(store, 0, 2)


def without_mpi(record: Record) -> Any:
    os.environ["BLUEFOG_MPI_HOME"] = "/nowhere"
    try:
        return beside(record)
    finally:
        del os.environ["BLUEFOG_MPI_HOME"]


def opposite(record: Record, act: Act, seconds: float = 10) -> Any:
    """Make a group as its rank 1, where rank 0 is linked to, and then acts as `act` says."""
    store = dist.HashStore()
    first = record._replace(id="of-tests-" + os.urandom(8).hex())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0bluefog-{first.id}")
        listener.listen()

        def serve() -> None:
            first.publish(store, 0)
            while (second := Record.of(store, 1)).answers != first.id:
                time.sleep(0.001)
            texts = [first.encode(), second.encode()]
            store.set(
                f"bluefog/2/{first.id}/roster", "".join(f"{len(text)}\n{text}" for text in texts)
            )
            there, _ = listener.accept()
            with there:
                there.recv(200)
                there.send(b"w")  # welcomes the caller
                act(there)

        with meanwhile(serve):
            return make(store, 1, 2, seconds)


@contextmanager
def no_files_left() -> Iterator[None]:
    """Run the block while every file descriptor is in use."""
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
        there.recv(1)  # This ends when the other side has closed.


def gives_wrong_memory(there: socket.socket) -> None:
    fd = os.memfd_create("wrong")
    socket.send_fds(there, [b"f"], [fd])
    os.close(fd)
    stays(there)


def gives_no_room(there: socket.socket) -> None:
    with no_files_left():
        socket.send_fds(there, [b"f"], [0])
        there.recv(200)  # The other side gives up then.


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
    other_id = own._replace(id=own.id[::-1])
    return {
        "another version": lambda: beside(own._replace(version="7.6.5")),
        "another host, no MPI": lambda: without_mpi(own._replace(host="far", place="away")),
        "died before": lambda: beside(own._replace(pid=str(gone.pid))),
        "gave up before": lambda: beside(own),
        "another process of this rank": lambda: beside_twin(other_id),
    }


def bad_links(own: Record) -> Calls:
    no_memory = (
        b"x0 1 0\nrank 0 could not make the group: making shared memory (memfd_create): "
        b"Too many open files"
    )
    return {
        "gave up after": lambda: opposite(own, leaves),
        "no memory comes": lambda: opposite(own, stays, 0.5),
        "wrong memory": lambda: opposite(own, gives_wrong_memory),
        "another rank died": lambda: opposite(own, says(b"x0 1 3\nrank 3 (pid 7) died")),
        "the other found no memory": lambda: opposite(own, says(no_memory)),
        "no file for the memory": lambda: opposite(own, gives_no_room),
        "no file for own memory": lambda: make_without_files(1),
        "no file for a socket": lambda: make_without_files(2),
    }


@telling
def bad_starts(rank: int, world: int) -> Iterator[Labeled]:
    own = own_record()
    yield from caught(bad_sizes_and_times())
    yield from caught(bad_records(own))
    yield from caught(bad_links(own))


def test_messages(pool: harness.Pool) -> None:
    golden.agree("init", pool.run(bad_starts))
