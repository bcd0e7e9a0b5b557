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


def neighbours() -> Calls:
    import bluefog_pg

    rank = dist.get_rank()
    source, target, far = (rank - 1) % 4, (rank + 1) % 4, (rank + 3) % 4
    # Exponential-2 on four ranks: in-neighbours are rank-1 and rank-2; rank+1 is none.
    stranger = (rank + 1) % 4

    def call(x: Any = None, **kwargs: Any) -> Any:
        return bluefog_pg.neighbor_allreduce(f(3) if x is None else x, **kwargs)

    dynamic = {"self_weight": 0.5, "src_weights": {source: 0.5}}
    nan, inf = float("nan"), float("inf")
    return {
        "only self_weight": lambda: call(self_weight=0.5),
        "only src_weights": lambda: call(src_weights={source: 0.5}),
        "dst without src": lambda: call(dst_weights=[target]),
        "dst and self without src": lambda: call(self_weight=0.5, dst_weights=[target]),
        "a stranger": lambda: call(self_weight=0.5, src_weights={stranger: 0.5}),
        "oneself in src": lambda: call(self_weight=0.5, src_weights={rank: 0.5}),
        "oneself in dst": lambda: call(**dynamic, dst_weights=[rank]),
        "src rank 4": lambda: call(self_weight=0.5, src_weights={4: 1.0}, dst_weights=[]),
        "src rank -1": lambda: call(self_weight=0.5, src_weights={-1: 1.0}, dst_weights=[]),
        "dst rank 4": lambda: call(**dynamic, dst_weights={4: 1.0}),
        "dst twice": lambda: call(**dynamic, dst_weights=[target, target]),
        "self NaN": lambda: call(self_weight=nan, src_weights={source: 0.5}),
        "src infinite": lambda: call(self_weight=0.5, src_weights={source: inf}),
        "dst NaN": lambda: call(**dynamic, dst_weights={far: nan}),
        "src a list": lambda: call(self_weight=0.5, src_weights=[source]),
        "self a string": lambda: call(self_weight="half", src_weights={source: 0.5}),
        "weight a string": lambda: call(self_weight=0.5, src_weights={source: "half"}),
        "int32": lambda: call(f(3, dtype=torch.int32)),
        "bool": lambda: call(f(3, dtype=torch.bool)),
        "neighbour sparse": lambda: call(torch.eye(3).to_sparse()),
        "neighbour meta": lambda: call(torch.ones(3, device="meta")),
        "a list of numbers": lambda: call([3.0]),
        "positional weight": lambda: bluefog_pg.neighbor_allreduce(f(3), 0.5),
        "unknown keyword": lambda: call(neighbor_weights={source: 0.5}),
    }


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
    "neighbours": {
        "only self_weight": ({V}, "src_weights"),
        "only src_weights": ({V}, "self_weight"),
        "dst without src": ({V}, "src_weights"),
        "dst and self without src": ({V}, "src_weights"),
        "a stranger": ({V}, "neighbo"),
        "oneself in src": ({V}, "src"),
        "oneself in dst": ({V}, "dst"),
        "src rank 4": ({V}, r"\b4\b"),
        "src rank -1": ({V}, "-1"),
        "dst rank 4": ({V}, r"\b4\b"),
        "dst twice": ({V}, "dst"),
        "self NaN": ({V}, "(?i)nan|finite"),
        "src infinite": ({V}, "(?i)inf|finite"),
        "dst NaN": ({V}, "(?i)nan|finite"),
        "src a list": ({V, T}, "src_weights"),
        "self a string": ({V, T}, "self_weight|str"),
        "weight a string": ({V, T}, None),
        "int32": ({V, T}, "int32"),
        "bool": ({V, T}, "bool"),
        "neighbour sparse": ({V, R, T}, "(?i)sparse|layout"),
        "neighbour meta": ({V, R}, "meta"),
        "a list of numbers": ({V, T}, None),
        "positional weight": ({T}, None),
        "unknown keyword": ({T}, "neighbor_weights"),
    },
}
# Refused before they reach the backend, by Python or by torch's dispatcher, which know no rank.
UNRANKED = {
    "quantized",
    "broadcast sparse",
    "gather sparse",
    "send sparse",
    "positional weight",
    "unknown keyword",
    "a list of tensors",
    "send nothing",
    "send two",
}


def all_bad(rank: int, world: int, kind: str) -> dict[str, inrank.Raised | None]:
    """Each bad call is made by one rank alone; then all must still agree on what comes next."""
    if kind == "neighbours":
        import bluefog_pg

        bluefog_pg.set_topology()
    errors: dict[str, inrank.Raised | None] = {}
    broken = []
    for i, (name, call) in enumerate(globals()[kind]().items()):
        if rank == i % world:
            errors[name] = inrank.catch(call)
        t = torch.full((5,), float(rank + i))
        dist.all_reduce(t)
        if not (t == sum(r + i for r in range(world))).all():
            broken.append(f"the group is broken after {name}: {t[0]}")
        if kind == "neighbours":
            x = bluefog_pg.neighbor_allreduce(torch.tensor([float(rank)])).item()
            if abs(x - (rank + (rank - 1) % 4 + (rank - 2) % 4) / 3) > 1e-5:
                broken.append(f"neighbor_allreduce is broken after {name}: {x}")
    assert not broken, broken
    return errors


@pytest.mark.parametrize("kind", list(EXPECTED))
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
