"""bluefog_pg.torch's operations against plain computations, their gradients, and handles."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.support import harness, inrank, oracle

pytestmark = harness.only_bluefog

WORLDS = [1, 2, 3, 4]
ROWS = (3, 0, 7, 1)  # of ranks 0, 1, ...


def values(rank: int, dtype: torch.dtype, shape: tuple[int, ...], seed: int = 1) -> Tensor:
    flat = oracle.values(dtype, torch.Size(shape).numel(), seed, rank)
    return flat.clone().view(shape)


def finished(bf: Any, handle: int) -> Tensor:
    result: Tensor = bf.synchronize(handle)
    assert inrank.catch(bf.poll, handle).kind == "ValueError"
    return result


def reduced(rank: int, world: int) -> None:
    """Every type: blocking or not, in place or not, of 0 dimensions or not contiguous."""
    import bluefog_pg.torch as bf

    bad = []
    for dtype in oracle.REDUCIBLE:
        has_mean = dtype.is_floating_point or dtype.is_complex
        for average in (False, True) if has_mean else (False,):
            for shape in ((), (0,), (4, 3)):
                xs = [values(r, dtype, shape) for r in range(world)]
                want, error = oracle.reduce(xs, "AVG" if average else "SUM")
                mine = (
                    xs[rank].clone().t().contiguous().t() if len(shape) == 2 else xs[rank].clone()
                )
                got = {
                    "allreduce": bf.allreduce(mine, average),
                    "nonblocking": finished(bf, bf.allreduce_nonblocking(mine, average)),
                    "async": finished(bf, bf.allreduce_async(mine, average, "name")),
                }
                if not torch.equal(mine, xs[rank]):
                    bad.append(f"{dtype} {shape}: the input was changed")
                for blocking in (True, False):
                    place = mine.clone(memory_format=torch.preserve_format)
                    result = (
                        bf.allreduce_(place, average)
                        if blocking
                        else bf.synchronize(bf.allreduce_nonblocking_(place, average))
                    )
                    assert result is place
                    got[f"in place, {blocking=}"] = place
                for how, tensor in got.items():
                    assert (tensor.shape, tensor.dtype) == (mine.shape, mine.dtype), how
                    told = oracle.differs(tensor, want, error)
                    bad += [f"{how} {dtype} {shape} {average=}: {told}"] if told else []
    assert not bad, bad


@pytest.mark.parametrize("world", WORLDS)
def test_allreduce(pool: harness.Pool, world: int) -> None:
    pool.run(reduced, world=world)


def spread(rank: int, world: int) -> None:
    import bluefog_pg.torch as bf

    bad = []
    for number, dtype in enumerate(oracle.MOVABLE):
        root = number % world
        mine, want = (oracle.bits(dtype, 7, r) for r in (rank, root))
        before = mine.clone()
        got = {
            "broadcast": bf.broadcast(mine, root),
            "nonblocking": finished(bf, bf.broadcast_nonblocking(mine, root, "name")),
            "async": finished(bf, bf.broadcast_async(mine, root)),
        }
        bad += [f"{dtype}: the input was changed"] if oracle.moved(mine, before) else []
        place, other = mine.clone(), mine.clone()
        assert bf.broadcast_(place, root) is place
        assert bf.synchronize(bf.broadcast_nonblocking_(other, root)) is other
        got |= {"in place": place, "in place, nonblocking": other}
        told = {how: oracle.moved(tensor, want) for how, tensor in got.items()}
        bad += [f"{how} {dtype}: {what}" for how, what in told.items() if what]
    assert bf.broadcast_object({"of": rank}, src=world - 1) == {"of": world - 1}
    things = [rank, "x" * rank]
    bf.broadcast_object_list(things)
    assert things == [0, ""]
    assert not bad, bad


@pytest.mark.parametrize("world", WORLDS)
def test_broadcast(pool: harness.Pool, world: int) -> None:
    pool.run(spread, world=world)


def gathered(rank: int, world: int) -> None:
    """Ranks have other numbers of rows, some none."""
    import bluefog_pg.torch as bf

    bad = []
    for dtype in oracle.MOVABLE:
        for row in ((), (5,), (2, 3)):
            xs = [values_of_bits(dtype, (ROWS[r], *row), r) for r in range(world)]
            mine = xs[rank] if row != (5,) else xs[rank].t().contiguous().t()
            handle = bf.allgather_nonblocking(mine, name="name")
            for got in (bf.allgather(mine), finished(bf, handle)):
                told = oracle.moved(got, torch.cat(xs))
                bad += [f"{dtype} {row}: {told}"] if told or got.shape[1:] != row else []
    assert not bad, bad


def values_of_bits(dtype: torch.dtype, shape: tuple[int, ...], rank: int) -> Tensor:
    return oracle.bits(dtype, torch.Size(shape).numel(), 5, rank).view(shape)


@pytest.mark.parametrize("world", WORLDS)
def test_allgather(pool: harness.Pool, world: int) -> None:
    pool.run(gathered, world=world)


def between_neighbours(rank: int, world: int) -> None:
    """The arguments reach bluefog_pg; the operations themselves are tested elsewhere."""
    import bluefog_pg.torch as bf

    bf.init(bf.RingGraph)
    left, right = (rank - 1) % world, (rank + 1) % world
    xs = [values(r, torch.float64, (3, 2)) for r in range(world)]
    x = xs[rank]

    def mean(own: float, weights: dict[int, float], scale: float = 1.0) -> Tensor:
        return own * x + sum(scale * w * xs[r] for r, w in weights.items())

    static = {"self_weight": 0.5, "src_weights": {left: 0.25}}
    dynamic = {"self_weight": 0.5, "src_weights": {left: 0.5}, "dst_weights": {right: 3.0}}
    pair = rank ^ 1
    ranks = {"src_ranks": [right, left], "dst_ranks": [left, right]}
    third = 1 / 3
    got = {
        "static": (bf.neighbor_allreduce(x), mean(third, {left: third, right: third})),
        "weights": (bf.neighbor_allreduce(x, **static), mean(0.5, {left: 0.25})),
        "dynamic": (bf.neighbor_allreduce(x, **dynamic, name="x"), mean(0.5, {left: 0.5}, 3.0)),
        "nonblocking": (
            finished(bf, bf.neighbor_allreduce_nonblocking(x, **dynamic)),
            mean(0.5, {left: 0.5}, 3.0),
        ),
        "async": (
            finished(bf, bf.neighbor_allreduce_async(x, 0.5, {left: 0.25}, "x")),
            mean(0.5, {left: 0.25}),
        ),
        "gather": (bf.neighbor_allgather(x), torch.cat([xs[r] for r in sorted((left, right))])),
        "gather in order": (bf.neighbor_allgather(x, **ranks), torch.cat([xs[right], xs[left]])),
        "gather, nonblocking": (
            finished(bf, bf.neighbor_allgather_nonblocking(x, **ranks)),
            torch.cat([xs[right], xs[left]]),
        ),
        "gather, async": (
            finished(bf, bf.neighbor_allgather_async(x, "x")),
            torch.cat([xs[r] for r in sorted((left, right))]),
        ),
        "gossip": (bf.pair_gossip(x, pair), mean(0.5, {pair: 0.5})),
        "gossip, nonblocking": (
            finished(bf, bf.pair_gossip_nonblocking(x, pair, 0.25, 0.5, "x")),
            mean(0.25, {pair: 0.5}),
        ),
    }
    bad = {
        what: f"{have}, not {want}"
        for what, (have, want) in got.items()
        if not have.allclose(want, rtol=1e-14)
    }
    assert not bad, bad


def test_neighbour_operations(pool: harness.Pool) -> None:
    pool.run(between_neighbours)


def on_machines(rank: int, world: int, each: int) -> None:
    """Machines of `each` ranks, the last one of what is left."""
    import bluefog_pg.torch as bf

    bf.shutdown()
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = str(each)
    bf.init()
    first = rank // each * each
    locals_ = range(first, min(first + each, world))
    assert (bf.local_size(), bf.local_rank()) == (len(locals_), rank - first)
    bad = []
    for dtype in oracle.REDUCIBLE:
        average = dtype.is_floating_point
        xs = [values(r, dtype, (2, 3)) for r in range(world)]
        near = [xs[r] for r in locals_]
        want, error = oracle.reduce(near, "AVG" if average else "SUM")
        place = xs[rank].clone()
        got = {
            "blocking": bf.allreduce(xs[rank], average, True),
            "nonblocking": finished(bf, bf.allreduce_nonblocking(xs[rank], average, True)),
            "in place": bf.allreduce_(place, average, is_hierarchical_local=True),
        }
        told = {how: oracle.differs(tensor, want, error) for how, tensor in got.items()}
        bad += [f"{how} {dtype}: {what}" for how, what in told.items() if what]
    x = torch.full((2,), float(rank), requires_grad=True)
    (bf.allreduce(x, False, True) * (rank + 1)).sum().backward()
    if x.grad.tolist() != [float(sum(r + 1 for r in locals_))] * 2:
        bad.append(f"gradient {x.grad}")
    if bf.is_homogeneous():
        bf.set_machine_topology(bf.FullyConnectedGraph(bf.machine_size()))
        mean = torch.tensor([(world - 1) / 2])
        x = torch.tensor([float(rank)])
        handle = bf.hierarchical_neighbor_allreduce_nonblocking(x, name="x")
        for have in (bf.hierarchical_neighbor_allreduce(x), finished(bf, handle)):
            bad += [] if have.allclose(mean) else [f"hierarchical: {have}"]
    bf.shutdown()
    del os.environ["BLUEFOG_NODES_PER_MACHINE"]
    inrank.init(f"machines of {each}", rank, world)  # as the pool expects
    assert not bad, bad


@pytest.mark.parametrize("each", [2, 3])
def test_machines(pool: harness.Pool, each: int) -> None:
    pool.run(on_machines, each)


# -- gradients ---------------------------------------------------------------------------------


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

    # What goes in on each rank, what comes out, the operation, its transpose.
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
    """What is not differentiable is not: no_grad, nonblocking, in place."""
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
    kept = torch.exp(x)  # its backward needs its result
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


# -- handles -----------------------------------------------------------------------------------


def pending(rank: int, world: int) -> None:
    """Many at once, waited for in reverse, whose tensors nobody else holds."""
    import bluefog_pg.torch as bf
    from bluefog_pg.torch import mpi_ops

    bf.init()
    handles = []
    for i in range(20):
        x = torch.full((3000,), float(i + rank))
        handles.append(bf.neighbor_allreduce_nonblocking(x, name=f"a{i}"))
        handles.append(bf.allreduce_nonblocking(x, name=f"a{i}"))  # another kind: another name
        handles.append(bf.allgather_nonblocking(x))
        del x
    got = [bf.synchronize(handle) for handle in reversed(handles)][::-1]
    near = (rank + (rank - 1) % world + (rank - 2) % world) / 3
    mean = (world - 1) / 2
    for i in range(20):
        averaged, reduced, rows = got[3 * i : 3 * i + 3]
        assert averaged.allclose(torch.tensor(i + near)), f"{i}: {averaged}, not {i + near}"
        assert reduced.allclose(torch.tensor(i + mean)), f"{i}: {reduced}, not {i + mean}"
        assert rows[::3000].tolist() == [float(i + r) for r in range(world)], f"{i}: {rows}"
    assert len(set(handles)) == 60, handles
    assert min(handles) > 0, handles
    kept = mpi_ops.handles._issued or mpi_ops.handles._busy
    assert not kept, kept


def test_many_pending(pool: harness.Pool) -> None:
    pool.run(pending)


def twice(rank: int, world: int) -> list[Any]:
    """A name is taken until its operation has ended, waited for or not."""
    import bluefog_pg.torch as bf

    bf.init()
    told: list[Any] = []
    if rank:
        inrank.await_file("at.issued.0")
    handles = [bf.allreduce_nonblocking(torch.ones(2), name="x")]
    if rank == 0:
        told.append(bf.poll(handles[0]))
        told.append(inrank.catch(bf.allreduce_nonblocking, torch.ones(2), name="x"))
        told.append(inrank.catch(bf.allreduce, torch.ones(2), True, "x"))  # as it once was
        inrank.mark("issued")
    handles.append(bf.broadcast_nonblocking(torch.ones(2), 0, "x"))
    while not all(bf.poll(handle) for handle in handles):
        time.sleep(0.001)
    again = bf.allreduce_nonblocking(torch.ones(3, dtype=torch.float64), name="x")
    told.append([bf.synchronize(h).tolist() for h in (again, *handles)])
    # In turn, by another type each time.
    for dtype in (torch.float16, torch.int32):
        told.append(bf.allreduce(torch.ones(1, dtype=dtype), False, name="x").item())
    return told


def test_one_of_a_name_at_a_time(pool: harness.Pool) -> None:
    first, *others = pool.run(twice)
    assert first[0] is False
    for error in first[1:3]:
        raised = harness.raised(error, "ValueError", text="allreduce.x")
        assert "under way" in raised.text
    for rest in (first[3:], *others):
        assert rest == [[[1.0] * 3, [1.0] * 2, [1.0] * 2], 4.0, 4]


def failing(rank: int, world: int) -> list[Any]:
    """The operation's error comes at synchronize; then the handle is gone, and its name free."""
    import bluefog_pg.torch as bf

    rows = torch.ones(2, 3 + (rank == 1))
    handle = bf.allgather_nonblocking(rows, name="x")
    error = inrank.catch(bf.synchronize, handle)
    gone = [inrank.catch(call, handle) for call in (bf.synchronize, bf.wait, bf.poll)]
    return [error, gone, bf.allgather(torch.ones(1), name="x").tolist()]


def test_errors_of_handles(pool: harness.Pool) -> None:
    for error, gone, after in pool.run(failing):
        assert 1 in harness.raised(error, "Mismatch").ranks
        assert "ValueError" in error.kinds
        for missing in gone:
            harness.raised(missing, "ValueError", text="no handle")
        assert after == [1.0] * 4


def interrupted(rank: int, world: int) -> list[Any]:
    """After Ctrl-C in a wait one can wait again."""
    import _thread
    import threading

    import bluefog_pg.torch as bf

    if rank == 1:
        inrank.await_file("at.interrupted.0")
        return [None, bf.allreduce(torch.ones(1), False).item()]
    handle = bf.allreduce_nonblocking(torch.ones(1), False)
    threading.Timer(0.3, _thread.interrupt_main).start()
    error = inrank.catch(bf.synchronize, handle)
    inrank.mark("interrupted")
    return [error and error.kind, bf.synchronize(handle).item()]


def test_interrupted_wait(pool: harness.Pool) -> None:
    assert pool.run(interrupted, world=2) == [["KeyboardInterrupt", 2.0], [None, 2.0]]


def at_once(rank: int, world: int) -> None:
    """Threads issue and wait at the same time; names keep neighbours' operations apart."""
    import bluefog_pg.torch as bf

    bf.init()

    def body(i: int) -> None:
        for step in range(20):
            x = torch.full((50,), float(i * 100 + step))
            handle = bf.neighbor_allreduce_nonblocking(x, name=f"thread {i}")
            got = bf.synchronize(handle)
            assert torch.equal(got, x), f"step {step}: {got}, not {x}"

    bad = inrank.in_threads(4, body)
    assert not bad, bad


def test_threads(pool: harness.Pool) -> None:
    pool.run(at_once, world=2)


def listed(rank: int, world: int) -> list[list[float]]:
    import bluefog_pg.torch as bf

    bf.init()
    xs = [torch.tensor([float(rank)]), torch.tensor([2.0 * rank])]
    both = (bf.neighbor_allreduce(xs), bf.synchronize(bf.neighbor_allreduce_nonblocking(xs)))
    return [[x.item() for x in ys] for ys in both]


def test_lists(pool: harness.Pool) -> None:
    assert pool.run(listed, world=2) == [[[0.5, 1.0]] * 2] * 2


def in_a_group(rank: int, world: int) -> list[Any]:
    """bluefog_pg.collectives of a group, in its numbers; ranks outside have no part."""
    from bluefog_pg import collectives

    group = dist.new_group([3, 1])
    if rank not in (1, 3):
        return []
    x = torch.tensor([float(rank)])
    work = collectives.allgather(x, group, async_op=True)
    work.wait()
    got = [
        collectives.allreduce(x, group=group).item(),
        collectives.broadcast(x, 1, group).item(),
        collectives.allgather(x, group).tolist(),
        work.result()[0].tolist(),
        work.get_future().wait()[0].tolist(),
        work.is_completed(),
    ]
    dist.destroy_process_group(group)
    return got


def test_groups(pool: harness.Pool) -> None:
    of_both = [2.0, 3.0, [1.0, 3.0], [1.0, 3.0], [1.0, 3.0], True]
    assert pool.run(in_a_group) == [[], of_both, [], of_both]
