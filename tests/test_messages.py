"""What the errors say, word by word, against tests/golden/messages.txt.

BLUEFOG_UPDATE_GOLDEN=1 pytest tests/test_messages.py writes that file anew: read the difference.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import harness
import inrank
from harness import Ranks

pytestmark = harness.only_bluefog

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"
Calls = dict[str, Callable[[], Any]]
Told = dict[str, inrank.Raised | None]

# What differs from one run, or one machine, to the next.
VARIES = {
    "a group's name": (r"of group \S+\)", "of group G)"),
    "a process": (r"\(pid \d+\)", "(pid P)"),
    "this host": (rf"\(on {re.escape(socket.gethostname())}\)", "(on HERE)"),
    "this version": (rf"\bruns {re.escape(metadata.version('bluefog-pg'))};", "runs V;"),
}
# Of the graph builders, which know no group.
NAMELESS = ("topologies, exponential of 0", "topologies, ring of -1", "topologies, ring in style 3")


def line(label: str, error: inrank.Raised) -> str:
    """`label: class [ranks]: text`, in one line."""
    text = error.text
    for pattern, name in VARIES.values():
        text = re.sub(pattern, name, text)
    ranks = "" if error.ranks is None else f" {list(error.ranks)}"
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"{label}: {error.kind}{ranks}: {escaped}"


def f(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def fs(count: int, n: int = 2, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [f(n, dtype=dtype) for _ in range(count)]


def sparse(rows: int = 3) -> torch.Tensor:
    return torch.eye(rows).to_sparse()


def meta(n: int = 2) -> torch.Tensor:
    return torch.ones(n, device="meta")


def expanded(n: int = 2) -> torch.Tensor:
    return torch.zeros(1).expand(n)


def options(name: str, **values: Any) -> Any:
    """c10d's struct of a call's options."""
    opts = getattr(c10d, f"{name}Options")()
    for key, value in values.items():
        setattr(opts, key, value)
    return opts


def cpu(group: dist.ProcessGroup | None = None) -> Any:
    group = group or dist.group.WORLD
    assert group is not None
    return group._get_backend(torch.device("cpu"))


def caught(calls: Calls) -> Told:
    return {label: inrank.catch(call) for label, call in calls.items()}


# -- arguments ------------------------------------------------------------------------------------


def tensors(b: Any) -> Calls:
    """What is no tensor to be sent or written, by every call that looks."""
    fake_mode = torch._subclasses.fake_tensor.FakeTensorMode()
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.quantize_per_tensor(f(3), 0.1, 0, torch.quint8)
        nested = torch.nested.nested_tensor([f(2), f(3)])
    none: list[torch.Tensor] = []
    outputs = [fs(4)]
    return {
        "allreduce of none": lambda: b.allreduce(none),
        "allreduce of two": lambda: b.allreduce(fs(2)),
        "allreduce of meta": lambda: b.allreduce([meta()]),
        "allreduce of csr": lambda: b.allreduce([torch.eye(3).to_sparse_csr()]),
        "allreduce of nested": lambda: b.allreduce([nested]),
        "allreduce of quantized": lambda: b.allreduce([quantized]),
        "allreduce of freed": lambda: b.allreduce([freed]),
        "allreduce of fake": lambda: b.allreduce([fake_mode.from_tensor(f(3))]),
        "allreduce of expanded": lambda: b.allreduce([expanded()]),
        "allreduce_coalesced of none": lambda: b.allreduce_coalesced(none),
        "allreduce_coalesced of meta": lambda: b.allreduce_coalesced([f(2), meta()]),
        "allreduce_coalesced of expanded": lambda: b.allreduce_coalesced([f(2), expanded()]),
        "broadcast of none": lambda: b.broadcast(none, options("Broadcast")),
        "broadcast of sparse": lambda: b.broadcast([sparse()], options("Broadcast")),
        "broadcast of expanded": lambda: b.broadcast([expanded()], options("Broadcast")),
        "reduce of three": lambda: b.reduce(fs(3), options("Reduce")),
        "reduce of meta": lambda: b.reduce([meta()], options("Reduce")),
        "reduce into expanded": lambda: b.reduce([expanded()], options("Reduce", rootRank=1)),
        "gather of none": lambda: b.gather([], none, options("Gather")),
        "scatter into none": lambda: b.scatter(none, [], options("Scatter")),
        "scatter into expanded": lambda: b.scatter([expanded()], [], options("Scatter")),
        "allgather of none": lambda: b.allgather(outputs, none),
        "allgather of sparse": lambda: b.allgather(outputs, [sparse()]),
        "allgather into meta": lambda: b.allgather([[*fs(3), meta()]], [f(2)]),
        "allgather into expanded": lambda: b.allgather([[*fs(3), expanded()]], [f(2)]),
        "reduce_scatter into none": lambda: b.reduce_scatter(none, [fs(4)]),
        "reduce_scatter into expanded": lambda: b.reduce_scatter([expanded()], [fs(4)]),
        "reduce_scatter of meta": lambda: b.reduce_scatter([f(2)], [[*fs(3), meta()]]),
        "alltoall into expanded": lambda: b.alltoall([*fs(3), expanded()], fs(4)),
        "alltoall of meta": lambda: b.alltoall(fs(4), [*fs(3), meta()]),
        "alltoall_base of sparse": lambda: b.alltoall_base(f(4), sparse(4), [], []),
        "alltoall_base into meta": lambda: b.alltoall_base(meta(4), f(4), [], []),
        "send of none": lambda: b.send(none, 0, 0),
        "send of two": lambda: b.send(fs(2), 0, 0),
        "send of sparse": lambda: b.send([sparse()], 0, 0),
        "recv into none": lambda: b.recv(none, 0, 0),
        "recv into expanded": lambda: b.recv([expanded()], 0, 0),
        "recv into quantized": lambda: b.recv([quantized], 0, 0),
        "recv_anysource into two": lambda: b.recv_anysource(fs(2), 0),
        "recv_anysource into meta": lambda: b.recv_anysource([meta()], 0),
    }


def reductions(b: Any) -> Calls:
    ops = dist.ReduceOp
    twice = dist._make_nccl_premul_sum(2.0)

    def all_reduce(t: torch.Tensor, op: Any) -> Any:
        return b.allreduce([t], options("Allreduce", reduceOp=op))

    def scatter(op: Any, dtype: torch.dtype) -> Any:
        opts = options("ReduceScatter", reduceOp=op)
        return b.reduce_scatter(fs(1, 2, dtype), [fs(4, 2, dtype)], opts)

    def reduce(t: torch.Tensor, op: Any) -> Any:
        return b.reduce([t], options("Reduce", reduceOp=op))

    return {
        "AVG of bool": lambda: all_reduce(f(3, dtype=torch.bool), ops.AVG),
        "BAND of float32": lambda: all_reduce(f(3), ops.BAND),
        "BOR of float16": lambda: all_reduce(f(3, dtype=torch.float16), ops.BOR),
        "BXOR of bfloat16": lambda: all_reduce(f(3, dtype=torch.bfloat16), ops.BXOR),
        "PREMUL_SUM of int64": lambda: all_reduce(f(3, dtype=torch.int64), twice),
        "MAX of complex64": lambda: all_reduce(f(3, dtype=torch.complex64), ops.MAX),
        "SUM of uint16": lambda: all_reduce(torch.ones(3, dtype=torch.uint16), ops.SUM),
        "SUM of float8": lambda: all_reduce(torch.ones(3).to(torch.float8_e4m3fn), ops.SUM),
        "MAX of sparse": lambda: all_reduce(sparse(), ops.MAX),
        "MIN of sparse coalesced": lambda: b.allreduce_coalesced(
            [f(2), sparse()], options("AllreduceCoalesced", reduceOp=ops.MIN)
        ),
        "unknown": lambda: all_reduce(f(3), ops(ops.RedOpType(9))),
        "reduce AVG of bool": lambda: reduce(f(3, dtype=torch.bool), ops.AVG),
        "reduce BAND of float64": lambda: reduce(f(3, dtype=torch.float64), ops.BAND),
        "reduce PRODUCT of complex128": lambda: reduce(f(3, dtype=torch.complex128), ops.PRODUCT),
        "reduce_scatter AVG of bool": lambda: scatter(ops.AVG, torch.bool),
        "reduce_scatter BXOR of float32": lambda: scatter(ops.BXOR, torch.float32),
    }


def places(b: Any) -> Calls:
    """Roots, ranks, tags, times."""
    broadcast, reduce = (
        (lambda **o: options("Broadcast", **o)),
        (lambda **o: options("Reduce", **o)),
    )
    group = dist.group.WORLD
    assert group is not None
    return {
        "broadcast root 4": lambda: b.broadcast(fs(1), broadcast(rootRank=4)),
        "broadcast root -1": lambda: b.broadcast(fs(1), broadcast(rootRank=-1)),
        "broadcast root tensor 1": lambda: b.broadcast(fs(1), broadcast(rootTensor=1)),
        "reduce root 9": lambda: b.reduce(fs(1), reduce(rootRank=9)),
        "reduce root tensor 2": lambda: b.reduce(fs(1), reduce(rootTensor=2)),
        "gather root 4": lambda: b.gather([], fs(1), options("Gather", rootRank=4)),
        "scatter root -2": lambda: b.scatter(fs(1), [], options("Scatter", rootRank=-2)),
        "send to 4": lambda: b.send(fs(1), 4, 0),
        "send to -1": lambda: b.send(fs(1), -1, 0),
        "send tag -1": lambda: b.send(fs(1), 0, -1),
        "recv from 4": lambda: b.recv(fs(1), 4, 0),
        "recv tag -3": lambda: b.recv(fs(1), 0, -3),
        "recv_anysource tag -1": lambda: b.recv_anysource(fs(1), -1),
        "set_timeout 0": lambda: group.set_timeout(timedelta(0)),
        "end without start of coalescing": b._end_coalescing,
    }


def twice_coalescing() -> inrank.Raised | None:
    b = cpu()
    b._start_coalescing()
    error = inrank.catch(b._start_coalescing)
    b._end_coalescing()
    return error


def lists(b: Any) -> Calls:
    group = dist.group.WORLD
    assert group is not None
    double, half = torch.float64, torch.float16
    own, other = options("Gather", rootRank=1), options("Gather", rootRank=0)
    mine, theirs = options("Scatter", rootRank=1), options("Scatter", rootRank=0)

    def base(out: torch.Tensor, x: torch.Tensor, outs: Any = (), ins: Any = ()) -> Any:
        return b.alltoall_base(out, x, list(outs), list(ins))

    return {
        "gather, root without list": lambda: b.gather([], fs(1), own),
        "gather, root with two lists": lambda: b.gather([fs(4), fs(4)], fs(1), own),
        "gather, root with 3 outputs": lambda: b.gather([fs(3)], fs(1), own),
        "gather, other with outputs": lambda: b.gather([fs(4)], fs(1), other),
        "gather, dtypes": lambda: b.gather([fs(4, 2, double)], fs(1), own),
        "gather, own size": lambda: b.gather([fs(4, 3)], fs(1), own),
        "gather, meta output": lambda: b.gather([[*fs(3), meta()]], fs(1), own),
        "gather, expanded output": lambda: b.gather([[*fs(3), expanded()]], fs(1), own),
        "scatter, root without list": lambda: b.scatter(fs(1), [], mine),
        "scatter, root with 5 inputs": lambda: b.scatter(fs(1), [fs(5)], mine),
        "scatter, other with inputs": lambda: b.scatter(fs(1), [fs(4)], theirs),
        "scatter, dtypes": lambda: b.scatter(fs(1), [fs(4, 2, half)], mine),
        "scatter, own size": lambda: b.scatter(fs(1), [fs(4, 3)], mine),
        "scatter, sparse input": lambda: b.scatter(fs(1), [[*fs(3), sparse()]], mine),
        "allgather, no list": lambda: b.allgather([], fs(1)),
        "allgather, two lists": lambda: b.allgather([fs(4), fs(4)], fs(1)),
        "allgather, 3 outputs": lambda: b.allgather([fs(3)], fs(1)),
        "allgather, dtypes": lambda: b.allgather([fs(4, 2, double)], fs(1)),
        "allgather, own size": lambda: b.allgather([fs(4, 3)], fs(1)),
        "allgather_base, size": lambda: b._allgather_base(f(7), f(2)),
        "allgather_base, dtype": lambda: b._allgather_base(f(8, dtype=torch.int32), f(2)),
        "allgather_base, stride": lambda: b._allgather_base(f(2, 4).t(), f(2)),
        "allgather_base, meta": lambda: b._allgather_base(meta(8), f(2)),
        "allgather_coalesced, 3 lists": lambda: b.allgather_coalesced([fs(1)] * 3, fs(1)),
        "allgather_coalesced, list of 2": lambda: b.allgather_coalesced([fs(2)] * 4, fs(1)),
        "allgather_coalesced, nothing": lambda: b.allgather_coalesced([[]] * 4, []),
        "allgather_into_tensor_coalesced, 2 for 1": lambda: group.allgather_into_tensor_coalesced(
            fs(2, 8), fs(1)
        ),
        "allgather_into_tensor_coalesced, size": lambda: group.allgather_into_tensor_coalesced(
            fs(1, 9), fs(1)
        ),
        "reduce_scatter, no list": lambda: b.reduce_scatter(fs(1), []),
        "reduce_scatter, 3 inputs": lambda: b.reduce_scatter(fs(1), [fs(3)]),
        "reduce_scatter, dtypes": lambda: b.reduce_scatter(fs(1), [fs(4, 2, double)]),
        "reduce_scatter, own size": lambda: b.reduce_scatter(fs(1, 3), [fs(4)]),
        "reduce_scatter_base, size": lambda: b._reduce_scatter_base(f(2), f(9)),
        "reduce_scatter_base, dtype": lambda: b._reduce_scatter_base(f(2), f(8, dtype=half)),
        "reduce_scatter_base, stride": lambda: b._reduce_scatter_base(f(2, 2).t(), f(16)),
        "reduce_scatter_tensor_coalesced, 2 for 1": lambda: group.reduce_scatter_tensor_coalesced(
            fs(2), fs(1, 8)
        ),
        "alltoall, 3 outputs": lambda: b.alltoall(fs(3), fs(4)),
        "alltoall, 5 inputs": lambda: b.alltoall(fs(4), fs(5)),
        "alltoall, dtypes of inputs": lambda: b.alltoall(fs(4), [*fs(3), f(2, dtype=double)]),
        "alltoall, dtypes of outputs": lambda: b.alltoall(fs(4, 2, double), fs(4)),
        "alltoall, own size": lambda: b.alltoall(fs(4, 3), fs(4)),
        "alltoall_base, dtype": lambda: base(f(4, dtype=half), f(4)),
        "alltoall_base, uneven": lambda: base(f(5), f(5)),
        "alltoall_base, stride": lambda: base(f(2, 4).t(), f(4, 2)),
        "alltoall_base, scalar": lambda: base(torch.tensor(1.0), torch.tensor(1.0)),
        "alltoall_base, 3 splits": lambda: base(f(6), f(6), (), (2, 2, 2)),
        "alltoall_base, negative split": lambda: base(f(4), f(4), (), (-1, 2, 2, 1)),
        "alltoall_base, large split": lambda: base(f(4), f(4), (), (5, 0, 0, 0)),
        "alltoall_base, sum of splits": lambda: base(f(4), f(4), (2, 1, 1, 1)),
        "alltoall_base, own split": lambda: base(f(4), f(4), (0, 2, 2, 0), (1, 1, 1, 1)),
    }


def neighbours(b: Any) -> Calls:
    import bluefog_pg

    # Exponential-2 on four ranks, and this is rank 1: its in-neighbours are 0 and 3.
    def call(x: Any = None, **kwargs: Any) -> Any:
        return bluefog_pg.neighbor_allreduce(f(3) if x is None else x, **kwargs)

    def direct(x: torch.Tensor, sources: Any = (), destinations: Any = ()) -> Any:
        edges = {"sources": list(sources), "destinations": list(destinations)}
        return b.neighbor_allreduce(x, self_weight=1.0, divisor=1.0, async_op=False, **edges)

    dynamic: dict[str, Any] = {"self_weight": 0.5, "src_weights": {0: 0.5}}
    return {
        "only self_weight": lambda: call(self_weight=0.5),
        "only src_weights": lambda: call(src_weights={0: 0.5}),
        "dst without src": lambda: call(dst_weights=[2]),
        "a stranger": lambda: call(self_weight=0.5, src_weights={2: 0.5}),
        "oneself in src": lambda: call(self_weight=0.5, src_weights={1: 0.5}),
        "oneself in dst": lambda: call(**dynamic, dst_weights=[1]),
        "src rank 4": lambda: call(self_weight=0.5, src_weights={4: 1.0}, dst_weights=[]),
        "dst rank -1": lambda: call(**dynamic, dst_weights={-1: 1.0}),
        "dst twice": lambda: call(**dynamic, dst_weights=[2, 2]),
        "dst a name": lambda: call(**dynamic, dst_weights=["two"]),
        "src a float": lambda: call(self_weight=0.5, src_weights={0.5: 1.0}),
        "self NaN": lambda: call(self_weight=math.nan, src_weights={0: 0.5}),
        "src infinite": lambda: call(self_weight=0.5, src_weights={0: math.inf}),
        "dst NaN": lambda: call(**dynamic, dst_weights={2: math.nan}),
        "src a list": lambda: call(self_weight=0.5, src_weights=[0]),
        "self a string": lambda: call(self_weight="half", src_weights={0: 0.5}),
        "src weight a string": lambda: call(self_weight=0.5, src_weights={0: "half"}),
        "dst weight None": lambda: call(**dynamic, dst_weights={2: None}),
        "int32": lambda: call(f(3, dtype=torch.int32)),
        "complex64": lambda: call(f(3, dtype=torch.complex64)),
        "float8": lambda: call(f(3).to(torch.float8_e5m2)),
        "sparse": lambda: call(sparse()),
        "meta": lambda: call(meta()),
        "a list of tensors": lambda: call([f(3)]),
        "no group": lambda: call(group=dist.GroupMember.NON_GROUP_MEMBER),
        "direct source 9": lambda: direct(f(3), [(9, 1.0)]),
        "direct destination -1": lambda: direct(f(3), [], [(-1, 1.0)]),
    }


def topologies() -> Calls:
    import networkx as nx

    import bluefog_pg

    util = bluefog_pg.topology_util
    square = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0)])
    infinite, nan = square.copy(), square.copy()
    infinite[0][1]["weight"] = math.inf
    nan[2][3]["weight"] = math.nan

    def take(graph: Any, is_weighted: bool = False) -> Any:
        return bluefog_pg.set_topology(graph, is_weighted)

    return {
        "a matrix": lambda: take([[0, 1], [1, 0]]),
        "a Graph": lambda: take(nx.Graph([(0, 1), (1, 2), (2, 3)])),
        "three nodes": lambda: take(nx.DiGraph([(0, 1), (1, 2)])),
        "five nodes": lambda: take(nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4)])),
        "names": lambda: take(nx.relabel_nodes(square, dict(enumerate("abcd")))),
        "infinity": lambda: take(infinite, True),
        "NaN": lambda: take(nan, True),
        "set_topology of no group": lambda: bluefog_pg.set_topology(group=-100),
        "load_topology of no group": lambda: bluefog_pg.load_topology(group="world"),
        "in_neighbor_ranks of no group": lambda: bluefog_pg.in_neighbor_ranks(group=0),
        "exponential of 0": lambda: util.ExponentialTwoGraph(0),
        "ring of -1": lambda: util.RingGraph(-1),
        "ring in style 3": lambda: util.RingGraph(4, 3),
    }


def of_python(gloo: Any) -> Calls:
    import bluefog_pg
    from bluefog_pg import _creator, _loader

    def for_other_torch() -> None:
        with mock.patch.object(torch.version, "__version__", "9.8.7+cpu"):
            _loader._check_torch_version()

    def unbuilt() -> None:
        with mock.patch.dict(sys.modules, {"bluefog_pg._build_info": None}):
            _loader._check_torch_version()

    def barrier(timeout: Any, **kwargs: Any) -> Any:
        return bluefog_pg.monitored_barrier(timeout=timeout, **kwargs)

    return {
        "monitored_barrier, time a number": lambda: barrier(3),
        "monitored_barrier, time a string": lambda: barrier("3 s"),
        "monitored_barrier, no group": lambda: barrier(None, group=-100),
        "monitored_barrier, gloo": lambda: barrier(None, group=gloo),
        "neighbor_allreduce, gloo": lambda: bluefog_pg.neighbor_allreduce(f(3), group=gloo),
        "stats, gloo": lambda: bluefog_pg.stats(gloo),
        "pg_options a dict": lambda: _creator.create(None, {}),
        "unknown name": lambda: bluefog_pg.nothing,
        "another torch": for_other_torch,
        "not built": unbuilt,
    }


def bad_arguments(rank: int, world: int) -> Told:
    """All bad calls are of rank 1; those in a smaller group, of its last member."""
    import bluefog_pg

    gloo = dist.new_group([1, 3], backend="gloo")
    pair = dist.new_group([1, 3])
    told: Told = {}
    bluefog_pg.set_topology()
    if rank == 1:
        b = cpu()
        kinds = {
            "tensors": tensors(b),
            "reductions": reductions(b),
            "places": places(b),
            "lists": lists(b),
            "neighbours": neighbours(b),
            "topologies": topologies(),
            "python": of_python(gloo),
        }
        for kind, calls in kinds.items():
            told |= {f"{kind}, {label}": error for label, error in caught(calls).items()}
        told["places, coalescing twice"] = twice_coalescing()
    if rank == 3:
        b = cpu(pair)
        told = caught(
            {
                "pair, root 3": lambda: b.broadcast(fs(1), options("Broadcast", rootRank=3)),
                "pair, gather": lambda: b.gather([fs(2)], fs(1), options("Gather", rootRank=0)),
                "pair, send to 3": lambda: b.send(fs(1), 3, 0),
                "pair, neighbours": lambda: bluefog_pg.neighbor_allreduce(
                    f(3), self_weight=0.5, src_weights={3: 0.5}, group=pair
                ),
                "pair, topology": lambda: bluefog_pg.set_topology([], group=pair),
            }
        )
    x = f(3)
    dist.all_reduce(x)
    dist.all_reduce(bluefog_pg.neighbor_allreduce(x))
    assert x[0] == world
    if rank in (1, 3):
        dist.destroy_process_group(gloo)
        dist.destroy_process_group(pair)
    return told


def arguments(pool: harness.Pool) -> Told:
    return joined(pool.run(bad_arguments))


def joined(told: list[Told]) -> Told:
    everything = {label: error for of_rank in told for label, error in of_rank.items()}
    assert len(everything) == sum(map(len, told)), "two messages with one label"
    return everything


# -- making a group -------------------------------------------------------------------------------


def make(store: Any, rank: int, size: int, seconds: float = 10) -> Any:
    import bluefog_pg

    opts = bluefog_pg.ProcessGroupBluefog.Options()
    opts._timeout = timedelta(seconds=seconds)
    opts.global_ranks_in_group = list(range(size))
    return bluefog_pg.ProcessGroupBluefog(store, rank, size, opts)


def own_record() -> list[str]:
    """What a rank of this process publishes: version, host, place, pid, socket, secret."""
    store = dist.HashStore()
    inrank.catch(make, store, 0, 2, 0.05)
    return store.get("bluefog/0/2/0/0").decode().splitlines()


def beside(of_other: int, record: list[str], seconds: float = 10) -> Any:
    """Make a group of two where the store holds this of the other one."""
    store = dist.HashStore()
    store.set(f"bluefog/0/2/0/{of_other}", "".join(f"{field}\n" for field in record))
    return make(store, 1 - of_other, 2, seconds)


@contextmanager
def no_files_left() -> Iterator[None]:
    """Every file descriptor is in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    try:
        while True:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def opposite(record: list[str], act: Callable[[socket.socket], Any], seconds: float = 10) -> Any:
    """Make a group as its rank 1, where rank 0 is linked to, and then does this."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        name = "bluefog-of-test_messages-" + os.urandom(8).hex()
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
            return beside(0, [*record[:4], name, "secret"], seconds)
        finally:
            thread.join()


def stays(there: socket.socket) -> None:
    with suppress(OSError):
        there.recv(1)  # until the other has closed


def gives_wrong_memory(there: socket.socket) -> None:
    fd = os.memfd_create("test_messages")
    socket.send_fds(there, [b"f"], [fd])
    os.close(fd)
    stays(there)


def gives_no_room(there: socket.socket) -> None:
    with no_files_left():
        socket.send_fds(there, [b"f"], [0])
        there.recv(200)  # that the other gives up


def without_files(size: int) -> inrank.Raised | None:
    store = dist.HashStore()
    with no_files_left():
        return inrank.catch(make, store, 0, size)


def bad_starts(rank: int, world: int) -> Told:
    if rank != 0:
        return {}
    new = dist.HashStore
    record = own_record()
    version, host, place, _, name, secret = record
    gone = subprocess.Popen(["true"])
    gone.wait()
    told = caught(
        {
            "no rank": lambda: make(new(), 0, 0),
            "257 ranks": lambda: make(new(), 0, 257),
            "rank 5 of 2": lambda: make(new(), 5, 2),
            "rank -1": lambda: make(new(), -1, 2),
            "no time": lambda: make(new(), 0, 2, 0),
            "nobody comes": lambda: make(new(), 0, 2, 0.3),
            "nobody comes to rank 2": lambda: make(new(), 2, 4, 0.05),
            "no record": lambda: beside(1, ["what", "is", "this"]),
            "another version": lambda: beside(
                1, ["7.6.5", host, place, str(os.getpid()), name, secret]
            ),
            "another host": lambda: beside(
                1, [version, "far", "away", str(os.getpid()), name, secret]
            ),
            "died before": lambda: beside(1, [version, host, place, str(gone.pid), name, secret]),
            "gave up before": lambda: beside(
                1, [version, host, place, str(os.getpid()), name, secret]
            ),
            "died after": lambda: opposite(record, lambda _: None),
            "no memory comes": lambda: opposite(record, stays, 0.5),
            "wrong memory": lambda: opposite(record, gives_wrong_memory),
            "another rank died": lambda: opposite(
                record, lambda there: there.send(b"x0 1 3\nrank 3 (pid 7) died")
            ),
            "the other found no memory": lambda: opposite(
                record,
                lambda there: there.send(
                    b"x0 1 0\nrank 0 could not make the group: making shared memory "
                    b"(memfd_create): Too many open files"
                ),
            ),
            "no file for the memory": lambda: opposite(record, gives_no_room),
        }
    )
    told["no file for own memory"] = without_files(1)
    told["no file for a socket"] = without_files(2)
    return told


def init(pool: harness.Pool) -> Told:
    return joined(pool.run(bad_starts))


# -- mismatches -----------------------------------------------------------------------------------

LARGE = 1 << 19


def everybody(group: Any) -> dict[str, Any]:
    """Weights of a pair that averages."""
    peer = 1 - dist.get_rank(group)
    return {"self_weight": 0.5, "src_weights": {peer: 0.5}, "dst_weights": [peer], "group": group}


def average(x: torch.Tensor, group: Any) -> Any:
    import bluefog_pg

    return bluefog_pg.neighbor_allreduce(x, **everybody(group))


def exchange(group: Any, outs: list[int], ins: list[int], dtype: Any = torch.float32) -> Any:
    out, x = f(sum(outs), dtype=dtype), f(sum(ins), dtype=dtype)
    return dist.all_to_all_single(out, x, outs, ins, group=group)


def gather(group: Any, root: int, own: int, all_: int | None = None, dtype: Any = None) -> Any:
    """Of the rank that is its own root: the sizes that it expects."""
    dtype = dtype or torch.float32
    opts = options("Gather", rootRank=root)
    outputs = [] if all_ is None else [[f(own, dtype=dtype), f(all_, dtype=dtype)]]
    return cpu(group).gather(outputs, [f(own, dtype=dtype)], opts).wait()


def scatter(group: Any, root: int, own: int, all_: int | None = None) -> Any:
    inputs = [] if all_ is None else [[f(own), f(all_)]]
    return cpu(group).scatter([f(own)], inputs, options("Scatter", rootRank=root)).wait()


def all_reduce(x: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> Callable[[Any], Any]:
    return lambda g: dist.all_reduce(x, op, group=g)


def broadcast(x: torch.Tensor, root: int = 0) -> Callable[[Any], Any]:
    return lambda g: dist.broadcast(x, group=g, group_src=root)


def reduce(x: torch.Tensor, root: int, op: Any = dist.ReduceOp.SUM) -> Callable[[Any], Any]:
    return lambda g: dist.reduce(x, group=g, group_dst=root, op=op)


def all_gather(n: int) -> Callable[[Any], Any]:
    return lambda g: dist.all_gather_into_tensor(f(2 * n), f(n), group=g)


def reduce_scatter(*sizes: int) -> Callable[[Any], Any]:
    def call(group: Any) -> Any:
        inputs = [f(n) for n in sizes]
        return dist.reduce_scatter(f(sizes[dist.get_rank(group)]), inputs, group=group)

    return call


def of_type(dtype: torch.dtype) -> torch.Tensor:
    return f(4).to(dtype)


def barrier(group: Any) -> Any:
    return dist.barrier(group=group)


# name: what rank 1 calls and what rank 3 calls, in a group of the two
PAIRS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "counts": (all_reduce(f(4)), all_reduce(f(5))),
    "dtypes": (all_reduce(f(4)), all_reduce(of_type(torch.float64))),
    "half types": (all_reduce(of_type(torch.float16)), all_reduce(of_type(torch.bfloat16))),
    "small and large": (all_reduce(f(2)), all_reduce(f(LARGE))),
    "large": (all_reduce(f(LARGE + 1)), all_reduce(f(LARGE))),
    "empty": (all_reduce(f(0)), all_reduce(f(3))),
    "operators": (all_reduce(f(4)), all_reduce(f(4), dist.ReduceOp.MAX)),
    "average": (
        all_reduce(f(4), dist.ReduceOp.AVG),
        all_reduce(f(4), dist._make_nccl_premul_sum(2.0)),
    ),
    "complex": (all_reduce(of_type(torch.complex64)), all_reduce(f(4))),
    "sparse shapes": (all_reduce(sparse(3)), all_reduce(sparse(4))),
    "sparse folded": (all_reduce(sparse(4)), all_reduce(torch.ones(2, 8).to_sparse())),
    "sparse and dense": (all_reduce(sparse(3)), all_reduce(f(9))),
    "broadcast roots": (broadcast(f(4), 0), broadcast(f(4), 1)),
    "broadcast counts": (broadcast(f(4)), broadcast(f(6))),
    "broadcast float8": (
        broadcast(of_type(torch.float8_e4m3fn)),
        broadcast(of_type(torch.float8_e5m2)),
    ),
    "reduce roots": (reduce(f(4), 1), reduce(f(4), 0)),
    "reduce operators": (reduce(f(4), 0), reduce(f(4), 0, dist.ReduceOp.MIN)),
    "all_reduce and barrier": (all_reduce(f(4)), barrier),
    "all_reduce and broadcast": (all_reduce(f(4)), broadcast(f(4))),
    "all_reduce and reduce": (all_reduce(f(4)), reduce(f(4), 0)),
    "all_gather and reduce_scatter": (all_gather(5), reduce_scatter(5, 5)),
    "all_gather counts": (all_gather(5), all_gather(6)),
    "all_gather lists": (
        lambda g: dist.all_gather([f(3), f(5)], f(3), group=g),
        lambda g: dist.all_gather([f(4), f(4)], f(4), group=g),
    ),
    "reduce_scatter counts": (reduce_scatter(5, 5), reduce_scatter(7, 7)),
    "reduce_scatter splits": (reduce_scatter(5, 3), reduce_scatter(4, 4)),
    "gather roots": (
        lambda g: gather(g, 0, 3, 3),
        lambda g: cpu(g).gather([fs(2, 3)], [f(3)], options("Gather", rootRank=1)).wait(),
    ),
    "gather dtypes": (
        lambda g: gather(g, 0, 3, 3),
        lambda g: gather(g, 0, 3, dtype=torch.int32),
    ),
    "gather and scatter": (lambda g: gather(g, 0, 3, 3), lambda g: scatter(g, 0, 3)),
    "all_to_all and barrier": (lambda g: exchange(g, [1, 1], [1, 1]), barrier),
    "all_to_all dtypes": (
        lambda g: exchange(g, [1, 1], [1, 1]),
        lambda g: exchange(g, [1, 1], [1, 1], torch.int64),
    ),
    "all_reduce and averaging": (all_reduce(f(4)), lambda g: average(f(4), g)),
    "averaging and barrier": (lambda g: average(f(LARGE), g), barrier),
    "broadcast and recv": (broadcast(f(4), 1), lambda g: dist.recv(f(4), group=g, group_src=0)),
    "all_gather and large send": (
        all_gather(5),
        lambda g: dist.send(f(LARGE), group=g, group_dst=0),
    ),
    "averaging counts": (lambda g: average(f(4), g), lambda g: average(f(6), g)),
    "averaging dtypes": (
        lambda g: average(f(4), g),
        lambda g: average(of_type(torch.float64), g),
    ),
    "large message": (
        lambda g: dist.send(f(LARGE), group=g, group_dst=1),
        lambda g: dist.recv(f(LARGE - 1), group=g, group_src=0),
    ),
}
# Where only rank 3 can know: rank 1 gives it something else than it expects.
ONE_SIDED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gather size": (lambda g: gather(g, 1, 4), lambda g: wrong_gather(g)),
    "scatter size": (lambda g: scatter(g, 0, 3, 4), lambda g: scatter(g, 0, 3)),
    "all_to_all size": (
        lambda g: exchange(g, [1, 1], [1, 4]),
        lambda g: exchange(g, [2, 1], [1, 1]),
    ),
    "message size": (
        lambda g: dist.send(f(4), group=g, group_dst=1),
        lambda g: dist.recv(f(3), group=g, group_src=0),
    ),
    "message dtype": (
        lambda g: dist.send(f(4), group=g, group_dst=1),
        lambda g: dist.recv(of_type(torch.int32), group=g, group_src=0),
    ),
    "message from anywhere": (
        lambda g: dist.send(f(4), group=g, group_dst=1),
        lambda g: dist.recv(f(5), group=g),
    ),
}


def wrong_gather(group: Any) -> Any:
    """As the root, which expects 5 elements of the other."""
    opts = options("Gather", rootRank=1)
    return cpu(group).gather([[f(5), f(3)]], [f(3)], opts).wait()


@contextmanager
def pair() -> Iterator[Any]:
    """A group of ranks 1 and 3, which are there when it begins and when it ends."""
    group = dist.new_group([1, 3])
    dist.barrier()
    yield group
    dist.barrier()
    if dist.get_rank() in (1, 3):
        dist.destroy_process_group(group)


def disagree(rank: int, world: int) -> Told:
    told: Told = {}
    for name, (of_one, of_three) in (PAIRS | ONE_SIDED).items():
        with pair() as group:
            if rank in (1, 3):
                error = inrank.catch(of_one if rank == 1 else of_three, group)
                if rank == 3 or name in PAIRS:
                    told[f"{name}, rank {rank}"] = error
                if name in ("counts", "sparse shapes", "all_reduce and averaging"):
                    told[f"{name}, rank {rank} again"] = inrank.catch(barrier, group)
    return told


def refuse_late(rank: int, world: int) -> Told:
    """A small send is over before it is refused: the call after the next hears of it."""
    told: Told = {}
    with pair() as group:
        if rank == 1:
            dist.send(f(4), group=group, group_dst=1)
        dist.barrier()
        if rank == 3:
            inrank.catch(dist.recv, f(5), group=group, group_src=0)
        dist.barrier()
        if rank == 1:
            dist.recv(f(1), group=group, group_src=1)
            told["a send before"] = inrank.catch(dist.send, f(1), group=group, group_dst=1)
        if rank == 3:
            dist.send(f(1), group=group, group_dst=0)
    return told


def come_to_a_mismatch(rank: int, world: int) -> Told:
    """Ranks 0 and 1 disagree, 2 and 3 come later."""
    group = dist.new_group()
    told: Told = {}
    for early in (True, False):
        if early == (rank < 2):
            told[f"of four, rank {rank}"] = inrank.catch(all_reduce(f(4 + (rank == 1))), group)
        dist.barrier()
    dist.destroy_process_group(group)
    return told


def monitor(rank: int, world: int) -> Told:
    """Rank 1 is in the barrier, rank 3 in a collective."""
    import bluefog_pg

    told: Told = {}
    with pair() as group:
        if rank == 1:
            wait = {"timeout": timedelta(seconds=20)}
            error = inrank.catch(bluefog_pg.monitored_barrier, group, **wait)
            told["monitored_barrier and all_reduce, rank 1"] = error
        if rank == 3:
            error = inrank.catch(all_reduce(f(4)), group)
            told["monitored_barrier and all_reduce, rank 3"] = error
    return told


def mismatches(pool: harness.Pool) -> Told:
    told = joined(pool.run(disagree, timeout=90))
    for body in (refuse_late, come_to_a_mismatch, monitor):
        told |= joined(pool.run(body))
    return told


# -- timeouts -------------------------------------------------------------------------------------


def alone(group: Any) -> dict[str, Callable[[], Any]]:
    """What rank 1 calls and rank 3 does not; each is the first of its group."""
    return {
        "all_reduce": lambda: dist.all_reduce(f(4), group=group),
        "all_reduce AVG large": lambda: dist.all_reduce(f(LARGE), dist.ReduceOp.AVG, group=group),
        "all_reduce sparse": lambda: dist.all_reduce(sparse(), group=group),
        "all_reduce coalesced": lambda: cpu(group).allreduce_coalesced(fs(2)).wait(),
        "broadcast": lambda: dist.broadcast(f(4), group=group, group_src=1),
        "reduce": lambda: dist.reduce(f(4), group=group, group_dst=0),
        "all_gather": lambda: all_gather(3)(group),
        "reduce_scatter": lambda: reduce_scatter(3, 4)(group),
        "gather": lambda: gather(group, 0, 3, 3),
        "scatter": lambda: scatter(group, 1, 3),
        "all_to_all": lambda: exchange(group, [1, 2], [1, 2]),
        "barrier": lambda: dist.barrier(group=group),
        "neighbor_allreduce": lambda: average(f(4), group),
        "neighbor_allreduce large": lambda: average(f(LARGE), group),
        "send large": lambda: dist.send(f(LARGE), group=group, group_dst=1),
        "recv": lambda: dist.recv(f(4), group=group, group_src=1),
        "recv tag 7": lambda: dist.recv(of_type(torch.int64), group=group, group_src=1, tag=7),
        "irecv from any source": lambda: dist.irecv(f(4), group=group).wait(),
    }


def stay_away(rank: int, world: int) -> Told:
    told: Told = {}
    for name in alone(None):
        with pair() as group:
            if rank in (1, 3):
                group.set_timeout(timedelta(seconds=0.3))
            if rank == 1:
                told[name] = inrank.catch(alone(group)[name])
                if name == "all_reduce":
                    told["all_reduce, then"] = inrank.catch(dist.barrier, group=group)
            dist.barrier()
            if rank == 3 and name == "all_reduce":
                told["all_reduce, late"] = inrank.catch(all_reduce(f(4)), group)
    return told


def send_too_late(rank: int, world: int) -> Told:
    """Of a large message, which needs its receiver; that one has given up and receives on."""
    told: Told = {}
    with pair() as group:
        if rank == 1:
            group.set_timeout(timedelta(seconds=0.3))
            inrank.catch(dist.recv, f(LARGE), group=group, group_src=1)
            group.set_timeout(timedelta(seconds=20))
        dist.barrier()
        if rank == 1:
            dist.recv(f(1), group=group, group_src=1, tag=1)
        if rank == 3:
            told["send too late"] = inrank.catch(dist.send, f(LARGE), group=group, group_dst=0)
            dist.send(f(1), group=group, group_dst=0, tag=1)
    return told


def wait_shortly(rank: int, world: int) -> Told:
    told: Told = {}
    with pair() as group:
        if rank == 1:
            work = dist.irecv(f(4), group=group, group_src=1)
            told["wait of 100 ms"] = inrank.catch(work.wait, timedelta(milliseconds=100))
            told["wait of 20 ms"] = inrank.catch(work.wait, timedelta(milliseconds=20))
        dist.barrier()
        if rank == 3:
            dist.send(f(4), group=group, group_dst=0)
    return told


def one_of_four_stays_away(rank: int, world: int) -> Told:
    group = dist.new_group()
    group.set_timeout(timedelta(seconds=1))
    told: Told = {}
    dist.barrier()
    if rank != 3:
        told[f"of four, rank {rank}"] = inrank.catch(dist.all_reduce, f(4), group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    return told


def monitored(rank: int, world: int) -> Told:
    import bluefog_pg

    told: Told = {}
    for label, missing, wait_all in (("first", (2, 3), False), ("all", (2, 3), True)):
        group = dist.new_group()
        dist.barrier()
        limit = {"timeout": timedelta(seconds=0.6), "wait_all_ranks": wait_all}
        for late in (False, True):
            if late == (rank in missing):
                error = inrank.catch(bluefog_pg.monitored_barrier, group, **limit)
                told[f"monitored_barrier, {label}, rank {rank}"] = error
            dist.barrier()
        dist.destroy_process_group(group)
    with pair() as group:
        if rank == 3:
            call = bluefog_pg.monitored_barrier
            limit = {"timeout": timedelta(seconds=0.2)}
            told["monitored_barrier, nobody at rank 0"] = inrank.catch(call, group, **limit)
            limit = {"timeout": timedelta(0)}
            told["monitored_barrier, no time"] = inrank.catch(call, group, **limit)
    return told


def timeouts(pool: harness.Pool) -> Told:
    bodies = (stay_away, send_too_late, wait_shortly, one_of_four_stays_away, monitored)
    return joined([told for body in bodies for told in pool.run(body)])


# -- ends -----------------------------------------------------------------------------------------


def left(rank: int, world: int) -> Told:
    """Rank 3 has left the group in order."""
    told: Told = {}
    for name in alone(None):
        group = dist.new_group([1, 3])
        dist.barrier()
        if rank == 3:
            dist.destroy_process_group(group)
        dist.barrier()
        if rank == 1:
            told[f"left, {name}"] = inrank.catch(alone(group)[name])
            if name == "all_reduce":
                told["left, all_reduce, then"] = inrank.catch(dist.barrier, group=group)
            dist.destroy_process_group(group)
    return told


def ended_here(rank: int, world: int) -> Told:
    """The rank's own doing: destroyed, aborted, what was pending and what comes later."""
    import bluefog_pg

    told: Told = {}
    for how in ("destroyed", "aborted"):
        group = dist.new_group([1, 3])
        dist.barrier()
        if rank == 1:
            b = cpu(group)
            works = {
                "recv": dist.irecv(f(4), group=group, group_src=1),
                "all_reduce": dist.all_reduce(f(4), group=group, async_op=True),
                "neighbor_allreduce": bluefog_pg.neighbor_allreduce(
                    f(4), group=group, async_op=True
                ),
            }
            dist.destroy_process_group(group) if how == "destroyed" else b.abort()
            told |= {f"{how}, pending {name}": inrank.catch(w.wait) for name, w in works.items()}
            told[f"{how}, wait again"] = inrank.catch(works["recv"].wait)
            told[f"{how}, future"] = inrank.catch(works["recv"].get_future().wait)
            told[f"{how}, all_reduce"] = inrank.catch(b.allreduce, fs(1))
            told[f"{how}, barrier"] = inrank.catch(b.barrier)
            told[f"{how}, send"] = inrank.catch(b.send, fs(1), 1, 0)
            told[f"{how}, monitored_barrier"] = inrank.catch(b.monitored_barrier)
        dist.barrier()
        if rank == 3 or (rank == 1 and how == "aborted"):
            dist.destroy_process_group(group)
    return told


def of_works(rank: int, world: int) -> Told:
    told: Told = {}
    with pair() as group:
        if rank == 1:
            work = dist.irecv(f(4), group=group, group_src=1)
            told["work, duration while it runs"] = inrank.catch(work._get_duration)
            dist.barrier()
            work.wait()
            work = dist.isend(f(4), group=group, group_dst=1)
            told["work, source of a send"] = inrank.catch(work._source_rank)
        else:
            dist.barrier()
        if rank == 3:
            dist.send(f(4), group=group, group_dst=0)
            dist.recv(f(4), group=group, group_src=0)
    return told


def forked(rank: int, world: int) -> Told:
    """In a child of rank 1."""
    import pickle

    import bluefog_pg

    if rank != 1:
        return {}
    pending = dist.irecv(f(4), 3, tag=5)
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        b = cpu()
        calls: Calls = {
            "all_reduce": lambda: dist.all_reduce(f(4)),
            "all_reduce sparse": lambda: dist.all_reduce(sparse()),
            "barrier": dist.barrier,
            "broadcast": lambda: dist.broadcast(f(4), 0),
            "send": lambda: dist.send(f(4), 0),
            "recv": lambda: dist.recv(f(4), 0),
            "recv from any source": lambda: dist.recv(f(4)),
            "neighbor_allreduce": lambda: bluefog_pg.neighbor_allreduce(f(4)),
            "monitored_barrier": bluefog_pg.monitored_barrier,
            "coalescing": b._start_coalescing,
            "wait": pending.wait,
        }
        told = {f"forked, {name}": inrank.catch(call) for name, call in calls.items()}
        with os.fdopen(there, "wb") as pipe:
            pickle.dump(told, pipe)
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        told = pickle.load(pipe)
    os.waitpid(pid, 0)
    return told


def give_to_the_forker(rank: int, world: int) -> None:
    if rank == 3:
        dist.send(f(4), 1, tag=5)


def killed(rank: int, world: int) -> Told:
    """Rank 3 dies, then rank 2; rank 1 tells."""
    import bluefog_pg

    groups = {name: dist.new_group([1, 3]) for name in alone(None)}
    monitored = dist.new_group([1, 3])
    ring, trio, everyone = dist.new_group(), dist.new_group([1, 2, 3]), dist.new_group()
    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world), group=ring)
    told: Told = {}
    work = dist.irecv(f(4), 3) if rank == 1 else None
    dist.barrier()
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and work:
        told = {f"killed, {name}": inrank.catch(alone(g)[name]) for name, g in groups.items()}
        told["killed, all_reduce, then"] = inrank.catch(barrier, groups["all_reduce"])
        told["killed, monitored_barrier"] = inrank.catch(bluefog_pg.monitored_barrier, monitored)
        told["killed, irecv before"] = inrank.catch(work.wait)
        told["killed, future"] = inrank.catch(work.get_future().wait)
    told[f"killed, of four, rank {rank}"] = inrank.catch(all_reduce(f(4)), everyone)
    error = None
    while error is None:  # rank 1 is no neighbour of rank 3: it hears it from those that are
        error = inrank.catch(bluefog_pg.neighbor_allreduce, f(4), group=ring)
    told[f"killed, ring, rank {rank}"] = error
    if rank == 1:
        told["killed, first of two"] = inrank.catch(dist.recv, f(4), 3, group=trio)
    inrank.meet("one is dead", 3)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        told["killed, both of two"] = inrank.catch(dist.recv, f(4), 2, group=trio)
    return told


def ends(pool: harness.Pool) -> Told:
    told = joined([t for body in (left, ended_here, of_works, forked) for t in pool.run(body)])
    pool.run(give_to_the_forker)
    with Ranks(4) as ranks:
        ranks.start(killed, world=4, store="s")
        return told | joined(list(ranks.values(40, dead=[2, 3]).values()))


# -- against the file -----------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[harness.Pool], Told]] = {
    "arguments": arguments,
    "init": init,
    "mismatches": mismatches,
    "timeouts": timeouts,
    "ends": ends,
}


def golden() -> dict[str, list[str]]:
    lines = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    of_section: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for text in lines:
        of_section.setdefault(text.split("/", 1)[0], []).append(text)
    return of_section


@pytest.mark.parametrize("section", list(SECTIONS))
def test_messages(pool: harness.Pool, section: str) -> None:
    told = SECTIONS[section](pool)
    silent = sorted(label for label, error in told.items() if error is None)
    assert not silent, f"nothing raised: {silent}"
    errors = {label: error for label, error in told.items() if error}
    foreign = [e for label, e in errors.items() if not (label in NAMELESS or "bluefog" in e.text)]
    assert not foreign, f"not of bluefog: {foreign}"
    now = sorted(line(f"{section}/{label}", error) for label, error in errors.items())
    before = golden()
    if os.environ.get("BLUEFOG_UPDATE_GOLDEN") == "1":
        GOLDEN.parent.mkdir(exist_ok=True)
        lines = [text for name in SECTIONS for text in (now if name == section else before[name])]
        GOLDEN.write_text("".join(f"{text}\n" for text in lines))
        return
    difference = difflib.unified_diff(
        before[section], now, str(GOLDEN.name), "what they say now", lineterm="", n=0
    )
    text = "\n".join(difference)
    assert not text, f"messages of {section!r} changed:\n{text}"


def test_the_golden_file_is_whole() -> None:
    of_section = golden()
    assert list(of_section) == list(SECTIONS)
    texts = {text.split(": ", 1)[1] for lines in of_section.values() for text in lines}
    assert len(texts) >= 140
