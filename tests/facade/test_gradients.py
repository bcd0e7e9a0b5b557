"""The operations of bluefog_pg.torch have gradients, and can be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import harness, inrank
from tests.support.facade import ROWS, WORLDS, values


def adjoint(rank: int, world: int, dtype: torch.dtype) -> None:
    """Backward is the transpose of forward, and its own backward is forward."""
    import bluefog_pg.torch as bf

    root = world - 1
    share = 1 / world
    starts = [sum(ROWS[:r]) for r in range(world + 1)]
    like = [(2, 3)] * world
    rows = [(n, 2) for n in ROWS[:world]]
    outs = [(starts[-1], 2)] * world

    def at(tensors: list[Tensor], scale: float = 1.0) -> Tensor:
        return sum(tensors[1:], tensors[0]) * scale

    # Each case lists the inputs of the ranks, the outputs, the operation, and its transpose.
    cases: dict[str, tuple[Any, Any, Callable[[Tensor], Tensor], Callable[[Any], Tensor]]] = {
        "mean": (like, like, bf.allreduce, lambda cs: at(cs, share)),
        "sum": (like, like, lambda x: bf.allreduce(x, False), at),
        "broadcast": (
            like,
            like,
            lambda x: bf.broadcast(x, root),
            lambda cs: at(cs, float(rank == root)),
        ),
        "allgather": (
            rows,
            outs,
            bf.allgather,
            lambda cs: at([c[starts[rank] : starts[rank + 1]] for c in cs]),
        ),
    }
    bad = []
    for what, (shapes, results, op, transpose) in cases.items():
        x = values(rank, dtype, shapes[rank], 1).requires_grad_()
        cs = [values(r, dtype, results[r], 2) for r in range(world)]
        vs = [values(r, dtype, shapes[r], 3) for r in range(world)]
        c = cs[rank].requires_grad_()
        y = op(x)
        assert y.requires_grad
        (back,) = torch.autograd.grad(y, x, c, create_graph=True)
        if not back.allclose(transpose([c.detach() for c in cs]), rtol=1e-12):
            bad.append(f"{what}: {back}")
        (again,) = torch.autograd.grad(back, c, vs[rank])
        if not again.allclose(op(vs[rank]), rtol=1e-12):
            bad.append(f"{what}, twice: {again}")
    assert not bad, bad


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("world", WORLDS)
def test_gradients(pool: harness.Pool, world: int, dtype: torch.dtype) -> None:
    pool.run(adjoint, dtype, world=world)


def without(rank: int, world: int) -> None:
    """No gradient goes through calls under no_grad, nonblocking ones, or those in place."""
    import bluefog_pg.torch as bf

    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        quiet = [bf.allreduce(x), bf.broadcast(x, 0), bf.allgather(x)]
    handles = [
        bf.allreduce_nonblocking(x),
        bf.broadcast_nonblocking(x, 0),
        bf.allgather_nonblocking(x),
        bf.neighbor_allreduce_nonblocking(x),
    ]
    quiet += [bf.synchronize(handle) for handle in handles]
    kept = torch.exp(x)  # exp's backward needs its result.
    bf.allreduce_(kept)
    stale = inrank.catch(kept.sum().backward)
    parameter = torch.nn.Parameter(torch.full((2,), float(rank)))
    bf.broadcast_(parameter, world - 1)
    assert not any(tensor.requires_grad for tensor in quiet), quiet
    assert stale is not None, "what was changed in place went backward"
    assert "modified by an inplace operation" in stale.text, stale.text
    assert parameter.requires_grad, parameter
    assert parameter.tolist() == [world - 1.0] * 2, parameter


def test_without_gradients(pool: harness.Pool) -> None:
    pool.run(without, world=2)


def compiled(rank: int, world: int) -> None:
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    ops = torch.ops.bluefog

    def whole(x: Tensor) -> Tensor:
        mean = ops.allreduce(x * 2)
        root = ops.broadcast(mean.sin() * x, 0)
        rows = ops.allgather(x * 3)
        return (mean * root).sum() + (rows * rows).sum()

    quick = torch.compile(whole, fullgraph=True, backend="aot_eager")
    got = []
    for function in (whole, quick):
        x = values(rank, torch.float64, (rank + 1, 2))[:1].requires_grad_()
        y = function(x)
        y.backward()
        got.append((y.detach(), x.grad))
    torch._dynamo.reset()
    for a, b in zip(*got, strict=True):
        assert torch.equal(a, b), f"{b}, not {a}"


@pytest.mark.slow
def test_compiled(pool: harness.Pool) -> None:
    pool.run(compiled, world=2)
