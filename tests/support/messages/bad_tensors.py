"""This module has calls with tensors that cannot be sent, written or reduced."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist

from tests.support.messages.bodies import Calls
from tests.support.messages.calls import options
from tests.support.messages.tensors import expanded, f, fs, meta, sparse


def tensors(b: Any) -> Calls:
    """Return every call that checks its tensors, with tensors that cannot be sent or written."""
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
        "SUM of uint16": lambda: all_reduce(f(3, dtype=torch.uint16), ops.SUM),
        "SUM of float8": lambda: all_reduce(f(3, dtype=torch.float8_e4m3fn), ops.SUM),
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
