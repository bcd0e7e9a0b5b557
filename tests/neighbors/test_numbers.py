"""Call k of a rank meets call k of its neighbors, and nothing else, as docs/failures.md says."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank

SMALL, LARGE = 4, 100_000


def along(src: list[int], dst: list[int], x: torch.Tensor, **kwargs: Any) -> Any:
    import bluefog_pg

    weights = {"src_weights": dict.fromkeys(src, 1.0), "dst_weights": dst}
    return bluefog_pg.neighbor_allreduce(x, self_weight=1.0, **weights, **kwargs)


def sums(rank: int, n: int, edges: list[dict[int, tuple[list[int], list[int]]]]) -> list[Any]:
    """Return the first element of each call's result, or what it raised; call k sums 10k + rank."""
    group = dist.new_group(timeout=timedelta(seconds=20 * harness.SLOW))
    told = []
    for k, of_ranks in enumerate(edges):
        src, dst = of_ranks.get(rank, ([], []))
        x = torch.full((n,), 10.0 * k + rank)
        told.append(inrank.outcome(lambda: along(src, dst, x, group=group)[0].item()))  # noqa: B023
    dist.barrier()
    dist.destroy_process_group(group)
    return told


def unsent(rank: int, world: int, n: int) -> list[Any]:
    """Rank 1 expects something in the second call from rank 0, which sends nothing."""
    both = {0: ([1], [1]), 1: ([0], [0])}
    return sums(rank, n, [both, {1: ([0], [])}, both, both])


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_a_source_that_makes_the_call_without_sending(pool: harness.Pool, n: int) -> None:
    first, (a, error, *later) = pool.run(unsent, n, world=2)
    assert first == [1.0, 10.0, 41.0, 61.0]
    assert [a, *later] == [1.0, 41.0, 61.0]
    harness.raised(error, "Mismatch", ranks=[0], text="on the edge 0 -> 1: rank 1 receives along")
    assert "call #2" in error.text
    assert error.took() < harness.WITHIN


def unheard(rank: int, world: int, n: int) -> list[Any]:
    """Rank 0 sends something in the second call to rank 1, which does not receive it."""
    both = {0: ([1], [1]), 1: ([0], [0])}
    return sums(rank, n, [both, {0: ([], [1])}, *[both] * 4])


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_a_message_that_nobody_receives(pool: harness.Pool, n: int) -> None:
    right = [1.0, None, *(20.0 * k + 1 for k in range(2, 6))]
    first, second = pool.run(unheard, n, world=2)
    assert second[1] == 11.0
    (error,) = (each for each in first if isinstance(each, inrank.Raised))
    text = "on the edge 0 -> 1: rank 0 sent along it in call #2"
    harness.raised(error, "Mismatch", ranks=[1], text=text)
    assert error.took() < harness.WITHIN
    # Either the message of the call that raised has come, or the other rank hears that it does not.
    for told in (first, second):
        for k, each in enumerate(told):
            assert isinstance(each, inrank.Raised) or right[k] in (None, each)


def refused(rank: int, world: int, form: str) -> list[Any]:
    """Rank 1 refuses its arguments in the second call."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=20 * harness.SLOW))
    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world), group=group)
    calls = {
        "allreduce": bluefog_pg.neighbor_allreduce,
        "list": lambda x, **kwargs: bluefog_pg.neighbor_allreduce([x], **kwargs),
        "allgather": bluefog_pg.neighbor_allgather,
        "alltoall": lambda x, **kwargs: bluefog_pg.neighbor_alltoall([x] * (world - 1), **kwargs),
        "named": partial(bluefog_pg.neighbor_allreduce, name="a"),
        "operator": lambda x, group: torch.ops.bluefog.neighbor_allreduce(
            x, group_name=group.group_name
        ),
    }
    bad = {
        "list": lambda: bluefog_pg.neighbor_allreduce([torch.ones(2), "b"], group=group),
        "operator": lambda: torch.ops.bluefog.neighbor_allreduce(
            torch.ones(2), src_ranks=[rank], group_name=group.group_name
        ),
        "named": lambda: calls["named"](torch.ones(2, dtype=torch.int64), group=group),
    }
    told = []
    for k in range(4):
        if (rank, k) == (1, 1):
            call = bad.get(form, lambda: calls[form]("x", group=group))
        else:
            call = partial(calls[form], torch.full((2,), 10.0 * k + rank), group=group)
        told.append(inrank.outcome(call))
    dist.barrier()
    dist.destroy_process_group(group)
    return [each if isinstance(each, inrank.Raised) else repr(each) for each in told]


@pytest.mark.parametrize(
    "form", ["allreduce", "list", "allgather", "alltoall", "named", "operator"]
)
def test_a_call_that_refuses_its_arguments_counts(pool: harness.Pool, form: str) -> None:
    told = pool.run(refused, form, world=3)
    for rank, (first, second, *later) in enumerate(told):
        assert not any(isinstance(each, inrank.Raised) for each in (first, *later)), told
        if rank == 1:
            assert isinstance(second, inrank.Raised)
            assert {"ValueError", "TypeError"} & set(second.kinds), second
        else:
            harness.raised(second, "Mismatch", ranks=[1])
            assert second.took() < harness.WITHIN


def extra(rank: int, world: int) -> list[Any]:
    """Rank 0 makes one more call than the others, in vain; then all align, and go on."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=1.0 * harness.SLOW))
    both = along([1 - rank], [1 - rank], torch.ones(SMALL), group=group)
    told: list[Any] = [both[0].item()]
    if rank == 0:
        told.append(inrank.catch(along, [1], [1], torch.ones(SMALL), group=group))
        along([], [1], torch.ones(SMALL), group=group, name="a")
    dist.barrier()
    bluefog_pg.align(group)
    for name in (None, "a"):
        x = torch.full((SMALL,), 5.0 + rank)
        told.append(along([1 - rank], [1 - rank], x, group=group, name=name)[0].item())
    dist.barrier()
    dist.destroy_process_group(group)
    return told


def test_align_brings_ranks_to_one_number(pool: harness.Pool) -> None:
    (first, error, *later), second = pool.run(extra, world=2)
    assert [first, *later] == second == [2.0, 11.0, 11.0]
    text = "rank 1 has made 1 of these calls, and this is #2"
    harness.raised(error, "CollectiveTimeout", ranks=[1], text=text)


def backward(rank: int, world: int) -> list[float]:
    """Rank 0 goes backward through the second call alone, and then all through a third one."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    xs = [torch.ones(SMALL, requires_grad=True) for _ in range(3)]
    ys = [bluefog_pg.neighbor_allreduce(x) for x in xs]
    grads = []
    for k in (1, 2) if rank == 0 else (0, 1, 2):
        if (rank, k) == (1, 0):
            continue
        (10.0**k * (rank + 1) * ys[k]).sum().backward()
        grads.append(xs[k].grad[0].item())
    dist.barrier()
    return grads


def test_gradients_have_the_numbers_of_their_calls(pool: harness.Pool) -> None:
    assert pool.run(backward, world=2) == [[15.0, 150.0]] * 2


def interrupted(rank: int, world: int) -> list[Any]:
    """Ctrl-C ends rank 0's second call, for which rank 1 is late."""
    group = dist.new_group(timeout=timedelta(seconds=20 * harness.SLOW))
    told: list[Any] = []
    for k in range(4):
        x = torch.full((LARGE,), 10.0 * k + rank)
        call = partial(along, [1 - rank], [1 - rank], x, group=group)
        if k == 1 and rank == 0:
            with inrank.interrupted_in(0.2 * harness.SLOW):
                told.append(inrank.catch(call))
            inrank.mark("interrupted")
            continue
        if k == 1:
            inrank.await_file("at.interrupted.0")
        told.append(inrank.outcome(lambda: call()[0].item()))  # noqa: B023
    dist.barrier()
    dist.destroy_process_group(group)
    return told


def test_a_call_that_is_interrupted_counts(pool: harness.Pool) -> None:
    (first, error, *later), (second, _, *others) = pool.run(interrupted, world=2)
    assert first == second == 1.0
    harness.raised(error, "KeyboardInterrupt")
    assert later == others == [41.0, 61.0]
