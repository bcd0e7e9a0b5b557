"""Bad arguments: raised in the caller before any byte moves, naming rank, call and fault."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.messages.bodies import Calls
from tests.support.messages.tensors import f

pytestmark = harness.only_bluefog


def reductions() -> Calls:
    ops = dist.ReduceOp
    premul = dist._make_nccl_premul_sum(2.0)
    return {
        "AVG of bool": lambda: dist.all_reduce(f(3, dtype=torch.bool), ops.AVG),
        "BAND of float32": lambda: dist.all_reduce(f(3), ops.BAND),
        "BXOR of bfloat16": lambda: dist.all_reduce(f(3, dtype=torch.bfloat16), ops.BXOR),
        "PREMUL_SUM of int64": lambda: dist.all_reduce(f(3, dtype=torch.int64), premul),
        "reduce_scatter AVG of bool": lambda: dist.reduce_scatter_tensor(
            f(1, dtype=torch.bool), f(4, dtype=torch.bool), ops.AVG
        ),
        "MAX of sparse": lambda: dist.all_reduce(torch.eye(3).to_sparse(), op=dist.ReduceOp.MAX),
        "quantized": lambda: dist.all_reduce(torch.quantize_per_tensor(f(3), 0.1, 0, torch.quint8)),
        "broadcast root 4": lambda: dist.broadcast(f(3), 4),
        "broadcast root -1": lambda: dist.broadcast(f(3), -1),
        "broadcast sparse": lambda: dist.broadcast(torch.eye(3).to_sparse(), 0),
    }


def gathers() -> Calls:
    def into(out: torch.Tensor, x: torch.Tensor) -> Any:
        return dist.all_gather_into_tensor(out, x)

    return {
        "gather 3 outputs": lambda: dist.all_gather([f(2) for _ in range(3)], f(2)),
        "gather 0 outputs": lambda: dist.all_gather([], f(2)),
        "gather 5 outputs": lambda: dist.all_gather([f(2) for _ in range(5)], f(2)),
        "gather output kinds": lambda: dist.all_gather(
            [f(2, dtype=torch.float64) for _ in range(4)], f(2)
        ),
        "gather own size": lambda: dist.all_gather([f(3) for _ in range(4)], f(2)),
        "gather sparse": lambda: dist.all_gather(
            [f(3, 3) for _ in range(4)], torch.eye(3).to_sparse()
        ),
        "gather_into size": lambda: into(f(7), f(2)),
        "gather_into kind": lambda: into(f(8, dtype=torch.int32), f(2)),
        "scatter 3 inputs": lambda: dist.reduce_scatter(f(2), [f(2) for _ in range(3)]),
        "scatter own size": lambda: dist.reduce_scatter(f(3), [f(2) for _ in range(4)]),
        "scatter kinds": lambda: dist.reduce_scatter(
            f(2), [f(2, dtype=torch.float64) for _ in range(4)]
        ),
        "scatter_tensor size": lambda: dist.reduce_scatter_tensor(f(2), f(9)),
        "scatter_tensor kind": lambda: dist.reduce_scatter_tensor(f(2), f(8, dtype=torch.float16)),
    }


def point_to_point() -> Calls:
    pg = dist.group.WORLD
    assert pg is not None
    return {
        "send to 4": lambda: pg.send([f(2)], 4, 0).wait(),
        "send to -1": lambda: pg.send([f(2)], -1, 0).wait(),
        "send tag -1": lambda: pg.send([f(2)], (dist.get_rank() + 1) % 4, -1).wait(),
        "send sparse": lambda: dist.isend(torch.eye(3).to_sparse(), (dist.get_rank() + 1) % 4),
        "send nothing": lambda: pg.send([], (dist.get_rank() + 1) % 4, 0),
        "send two": lambda: pg.send([f(1), f(1)], (dist.get_rank() + 1) % 4, 0),
        "recv from 4": lambda: pg.recv([f(2)], 4, 0).wait(),
    }


KINDS = {"reductions": reductions, "gathers": gathers, "point_to_point": point_to_point}
# name: the classes one of which it must be, and what the text must say (None: torch refuses first)
V, T, R = "ValueError", "TypeError", "RuntimeError"
EXPECTED: dict[str, dict[str, tuple[set[str], str | None]]] = {
    "reductions": {
        "AVG of bool": ({V, T, R}, "AVG.*bool|bool.*AVG"),
        "BAND of float32": ({V, T, R}, "BAND.*float32|float32.*BAND"),
        "BXOR of bfloat16": ({V, T, R}, "BXOR.*bfloat16|bfloat16.*BXOR"),
        "PREMUL_SUM of int64": ({V, T, R}, "PREMUL_SUM.*int64|int64.*PREMUL_SUM"),
        "reduce_scatter AVG of bool": ({V, T, R}, "AVG.*bool|bool.*AVG"),
        "MAX of sparse": ({V, R}, "sparse"),
        "quantized": ({V, T, R}, "(?i)quint8|quantized"),
        "broadcast root 4": ({V, R}, r"\b4\b"),
        "broadcast root -1": ({V, R}, "-1"),
        "broadcast sparse": ({V, R}, "(?i)sparse|layout"),
    },
    "gathers": {
        "gather 3 outputs": ({V, R}, r"\b3\b.*\b4\b|\b4\b.*\b3\b"),
        "gather 0 outputs": ({V, R}, None),
        "gather 5 outputs": ({V, R}, r"\b5\b.*\b4\b|\b4\b.*\b5\b"),
        "gather output kinds": ({V, T, R}, None),
        "gather own size": ({V, R}, r"\b3\b"),
        "gather sparse": ({V, R}, "(?i)sparse|layout"),
        "gather_into size": ({V, R}, r"\b7\b"),
        "gather_into kind": ({V, T, R}, "int32"),
        "scatter 3 inputs": ({V, R}, r"\b3\b.*\b4\b|\b4\b.*\b3\b"),
        "scatter own size": ({V, R}, r"\b3\b"),
        "scatter kinds": ({V, T, R}, None),
        "scatter_tensor size": ({V, R}, r"\b9\b"),
        "scatter_tensor kind": ({V, T, R}, "float16"),
    },
    "point_to_point": {
        "send to 4": ({V, R}, r"\b4\b"),
        "send to -1": ({V, R}, "-1"),
        "send tag -1": ({V, R}, "-1"),
        "send sparse": ({V, R}, "(?i)sparse|layout"),
        "send nothing": ({V, R, T}, None),
        "send two": ({V, R, T}, r"\b2\b|one tensor"),
        "recv from 4": ({V, R}, r"\b4\b"),
    },
}
# Refused before they reach the backend, by Python or by torch's dispatcher, which know no rank.
UNRANKED = {
    "quantized",
    "broadcast sparse",
    "gather sparse",
    "send sparse",
    "send nothing",
    "send two",
}


def all_bad(rank: int, world: int, kind: str) -> dict[str, inrank.Raised | None]:
    """Each bad call is made by one rank alone; then all must still agree on what comes next."""
    errors: dict[str, inrank.Raised | None] = {}
    broken = []
    for i, (name, call) in enumerate(KINDS[kind]().items()):
        if rank == i % world:
            errors[name] = inrank.catch(call)
        t = torch.full((5,), float(rank + i))
        dist.all_reduce(t)
        if not (t == sum(r + i for r in range(world))).all():
            broken.append(f"the group is broken after {name}: {t[0]}")
    assert not broken, broken
    return errors


@pytest.mark.parametrize("kind", KINDS)
def test_bad_arguments(pool: harness.Pool, kind: str) -> None:
    told = pool.run(all_bad, kind)
    wrong = []
    for rank, errors in enumerate(told):
        for name, error in errors.items():
            kinds, said = EXPECTED[kind][name]
            if error is None:
                wrong.append(f"{name}: was accepted")
            elif not kinds & set(error.kinds):
                wrong.append(f"{name}: raised {error.kind}: {error.text[:200]}")
            elif said and not re.search(said, error.text, re.DOTALL):
                wrong.append(f"{name}: does not say {said!r}: {error.text[:300]}")
            elif said and name not in UNRANKED and not re.search(rf"rank {rank}\b", error.text):
                wrong.append(f"{name}: does not name rank {rank}: {error.text[:200]}")
            elif error.took() > harness.WITHIN:
                wrong.append(f"{name}: took {error.took():.1f} s")
    missing = set(EXPECTED[kind]) - {name for errors in told for name in errors}
    assert not missing
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong)


def overlapping(rank: int, world: int) -> list[Any]:
    x = torch.zeros(1).expand(4)
    errors = [
        inrank.catch(dist.all_reduce, x),
        inrank.catch(dist.broadcast, x, 0),
        inrank.catch(dist.irecv, x, (rank + 1) % world),
    ]
    t = f(5)
    dist.all_reduce(t)
    return [errors, t.tolist()]


def test_elements_that_share_memory_are_refused(pool: harness.Pool) -> None:
    for errors, total in pool.run(overlapping, timeout=20):
        for error in errors:
            harness.raised(error, "Exception")
            assert {V, R} & set(error.kinds) and "DistBackendError" not in error.kinds, error
            assert error.took() < harness.WITHIN
        assert total == [4.0] * 5


def without_memory(rank: int, world: int) -> list[Any]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    import bluefog_pg

    freed, fake = torch.ones(4), FakeTensorMode().from_tensor(torch.ones(4))
    freed.untyped_storage().resize_(0)
    told = [inrank.catch(dist.all_reduce, freed)]
    told += [inrank.catch(bluefog_pg.neighbor_allreduce, tensor) for tensor in (freed, fake)]
    average = bluefog_pg.neighbor_allreduce(torch._neg_view(torch.tensor([1.0, 2.0])))
    return [told, average.tolist()]


def test_tensors_that_are_not_what_lies_in_memory(pool: harness.Pool) -> None:
    for told, average in pool.run(without_memory):
        for error in told:
            harness.raised(error, "ValueError", text="has no memory")
        assert average == [-1.0, -2.0]


def after_destroy(rank: int, world: int) -> list[Any]:
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()
    dist.destroy_process_group(group)
    first = inrank.catch(lambda: backend.allreduce([torch.ones(1)]).wait())
    backend.shutdown()
    backend.shutdown()
    t = torch.ones(1)
    dist.all_reduce(t)
    return [first, t.item()]


def test_a_destroyed_group_refuses(pool: harness.Pool) -> None:
    for error, still in pool.run(after_destroy):
        harness.raised(error, "RuntimeError")
        assert error.took() < harness.WITHIN and still == 4


def is_error_of_torch(rank: int, world: int) -> list[Any]:
    import bluefog_pg

    classes = [bluefog_pg.PeerFailed, bluefog_pg.CollectiveTimeout]
    classes += [bluefog_pg.Mismatch, bluefog_pg.Aborted]
    return [c.__name__ for c in classes if issubclass(c, dist.DistBackendError)]


def test_error_classes(pool: harness.Pool) -> None:
    names = ["PeerFailed", "CollectiveTimeout", "Mismatch", "Aborted"]
    assert pool.run(is_error_of_torch, world=1) == [names]
