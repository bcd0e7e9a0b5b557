"""This module has the peers that are compared, and what each one calls for each operation.

A peer binds a case to a call without arguments that returns the tensor (or the list of them) with
the result, or to None where it has no such operation.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import launch
import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from bluefog_pg.tools.bench.cases import GRAPHS, NEIGHBOR, PAIR, Call, Case, Result, settle
from bluefog_pg.tools.bench.peer import TorchPeer

warnings.filterwarnings("ignore", "`torch.distributed.all_reduce_coalesced`", FutureWarning)


class FakePeer(TorchPeer):
    """A FakePeer uses torch's FakeProcessGroup, which moves nothing: the floor of dispatch."""

    checked = False


class Averaging:
    """An Averaging averages the case's tensor.

    Repeated, each call averages what the last one gave.
    """

    def __init__(self, averaged: Result, average: Callable[[Result], Result]) -> None:
        self.averaged, self.average = averaged, average

    def __call__(self) -> Result:
        return self.average(self.averaged)

    def repeat(self, reps: int) -> float:
        x, average = self.averaged, self.average
        start = time.perf_counter()
        for _ in range(reps):
            x = average(x)
        settle()
        return (time.perf_counter() - start) / reps


class BluefogPeer(TorchPeer):
    def averaged(self, case: Case) -> Result:
        return case.send

    def bind(self, case: Case) -> Call | None:
        if case.op not in NEIGHBOR:
            return super().bind(case)
        import bluefog_pg

        group, averaged = self.group, self.averaged(case)
        if case.op == PAIR:
            partner = case.rank ^ 1
            return Averaging(averaged, lambda x: bluefog_pg.pair_gossip(x, partner, group=group))
        if case.op == "neighbor_one_peer":
            turns = itertools.cycle(case.edges())

            def average(x: Result) -> Result:
                (source,), to = next(turns)
                return bluefog_pg.neighbor_allreduce(
                    x, self_weight=0.5, src_weights={source: 0.5}, dst_weights=to, group=group
                )

            return Averaging(averaged, average)
        graphs = bluefog_pg.topology_util
        ring = case.op == "neighbor_ring"
        graph = (graphs.RingGraph if ring else graphs.ExponentialTwoGraph)(case.n)
        bluefog_pg.set_topology(graph, group=group)
        return Averaging(averaged, lambda x: bluefog_pg.neighbor_allreduce(x, group=group))


class ListPeer(BluefogPeer):
    """A ListPeer averages a hundred tensors as one list, which fill the case's buffer."""

    def averaged(self, case: Case) -> list[Tensor]:
        return list(case.send.tensor_split(100))

    def bind(self, case: Case) -> Call | None:
        return super().bind(case) if case.op in GRAPHS else None


class AddPeer:
    """An AddPeer shows the floor of an averaging in Python: torch makes a tensor and adds two."""

    name, checked = "torch.add", False

    def bind(self, case: Case) -> Call:
        send = case.send
        return lambda: torch.add(send, send, out=torch.empty_like(send))


class MessagesPeer(TorchPeer):
    """A MessagesPeer exchanges messages with each neighbor, and averages what has come.

    gloo and NCCL have no neighbor operation.
    """

    def exchange(self, send: Tensor, to: list[int], got: list[Tensor], sources: list[int]) -> None:
        group = self.group
        works: list[Any] = [
            dist.irecv(buffer, s, group) for buffer, s in zip(got, sources, strict=True)
        ]
        works += [dist.isend(send, d, group) for d in to]
        for work in works:
            work.wait()

    def bind(self, case: Case) -> Call | None:
        if case.op not in NEIGHBOR:
            return super().bind(case)
        send, recv, turns = case.send, case.recv, itertools.cycle(case.edges())
        got = [torch.empty_like(send) for _ in case.edges()[0][0]]

        def call() -> Tensor:
            sources, to = next(turns)
            self.exchange(send, to, got, sources)
            torch.add(send, got[0], out=recv)
            for buffer in got[1:]:
                recv.add_(buffer)
            return recv.mul_(1 / (len(got) + 1))

        return call


class BatchPeer(MessagesPeer):
    """A BatchPeer sends a call's messages in one batch, as single ones of NCCL's wait in turn."""

    def exchange(self, send: Tensor, to: list[int], got: list[Tensor], sources: list[int]) -> None:
        ops = [
            dist.P2POp(dist.irecv, buffer, s, self.group)
            for buffer, s in zip(got, sources, strict=True)
        ]
        ops += [dist.P2POp(dist.isend, send, d, self.group) for d in to]
        for work in dist.batch_isend_irecv(ops):
            work.wait()


def start_mpi() -> Any:
    import mpi4py

    # No other thread calls MPI, so the least locking is enough.
    mpi4py.rc.thread_level = "funneled"
    from mpi4py import MPI

    return MPI


class MpiPeer:
    """An MpiPeer uses Open MPI by mpi4py's buffer calls, and for neighbors messages and numpy."""

    name, checked = "mpi", True
    # Elements are summed and scaled in blocks of this size, while they are in the L2 cache.
    BLOCK = 32768

    def __init__(self) -> None:
        self.mpi = start_mpi()
        # Across hosts, bluefog takes the messages of COMM_WORLD, so this peer has a communicator of
        # its own.
        self.world = self.mpi.COMM_WORLD.Dup()

    def bind(self, case: Case) -> Call | None:
        if case.op in NEIGHBOR:
            return self.bind_neighbor(case)
        mpi, world = self.mpi, self.world
        send, recv = (case.send.numpy(), mpi.FLOAT), (case.recv.numpy(), mpi.FLOAT)
        arguments: dict[str, Any] = {
            "all_reduce": (world.Allreduce, (mpi.IN_PLACE, send)),
            "broadcast": (world.Bcast, (send,)),
            "all_gather": (world.Allgather, (send, recv)),
            "reduce_scatter": (world.Reduce_scatter_block, (send, recv)),
            "reduce": (world.Reduce, (mpi.IN_PLACE if case.rank == 0 else send, send)),
            "gather": (world.Gather, (send, recv)),
            "scatter": (world.Scatter, (send if case.rank == 0 else None, recv)),
            "all_to_all": (world.Alltoall, (send, recv)),
        }
        if case.op not in arguments:
            return None
        function, buffers = arguments[case.op]
        result = case.send if case.op in ("all_reduce", "broadcast", "reduce") else case.recv

        def call() -> Tensor:
            function(*buffers)
            return result

        return call

    def bind_neighbor(self, case: Case) -> Call:
        mpi, world, turns = self.mpi, self.world, itertools.cycle(case.edges())
        send, out = case.send.numpy(), case.recv.numpy()
        got = [np.empty_like(send) for _ in case.edges()[0][0]]
        average = self.averaging(out, [send, *got])
        spec, specs = (send, mpi.FLOAT), [(buffer, mpi.FLOAT) for buffer in got]

        def call() -> Tensor:
            sources, to = next(turns)
            if len(sources) == 1:
                world.Sendrecv(spec, to[0], 0, specs[0], sources[0], 0)
            else:
                requests = [world.Irecv(b, s) for b, s in zip(specs, sources, strict=True)]
                requests += [world.Isend(spec, d) for d in to]
                mpi.Request.Waitall(requests)
            average()
            return case.recv

        return call

    def averaging(self, out: np.ndarray, inputs: list[np.ndarray]) -> Callable[[], None]:
        weight = np.float32(1 / len(inputs))
        cuts = [slice(at, at + self.BLOCK) for at in range(0, len(out), self.BLOCK)]
        blocks = [(out[cut], [x[cut] for x in inputs]) for cut in cuts]

        def average() -> None:
            for sum_, (first, second, *others) in blocks:
                np.add(first, second, out=sum_)
                for other in others:
                    np.add(sum_, other, out=sum_)
                np.multiply(sum_, weight, out=sum_)

        return average


class MemcpyPeer:
    """A MemcpyPeer copies the same bytes on every rank at once, which shows the limit of memory."""

    name, checked = "memcpy", False

    def bind(self, case: Case) -> Call:
        source = torch.zeros(case.size // 4, device=case.device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)


class WirePeer:
    """A WirePeer shows what the network allows.

    Each rank sends its share of what a host must send at least to a rank on the next host, by a
    bare TCP connection.
    """

    name, checked = "wire", False

    def __init__(self, rank: int, n: int, hosts: int, store: dist.Store) -> None:
        self.hosts, self.on_host = hosts, n // hosts
        with socket.create_server(("", 0)) as server:
            store.set(f"wire/{rank}", f"{launch.own_address()}:{server.getsockname()[1]}")
            address, port = store.get(f"wire/{(rank + self.on_host) % n}").decode().split(":")
            self.to = socket.create_connection((address, int(port)))
            self.source, _ = server.accept()

    def bind(self, case: Case) -> Call:
        factor = 1.0 if case.op in NEIGHBOR else 2 * (self.hosts - 1) / self.hosts / self.on_host
        sent = memoryview(bytearray(round(case.size * factor)))
        got = memoryview(bytearray(len(sent)))
        result = torch.zeros(1)

        def call() -> Tensor:
            sender = threading.Thread(target=self.to.sendall, args=(sent,))
            sender.start()
            at = 0
            while at < len(got):
                at += self.source.recv_into(got[at:])
            sender.join()
            return result

        return call
