"""Ranks that cannot tell any more which of their calls belong together, since one has met another
one: both ends of an edge hear so, and what has a name, or is in step, goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.operations import extremes, group_of_machines

WORLD = 3


def along_other_edges(
    rank: int, world: int, usual: str, odd: str, n: int, pause: float
) -> list[Any]:
    """In the second call rank 0 calls something along other edges; all go on, in a step of `pause`
    seconds."""
    import bluefog_pg

    told = list[Any]()
    with group_of_machines(2, 1.0 * harness.SLOW) as group:
        bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world), group=group)
        ring = bluefog_pg.topology_util.RingGraph(2)
        bluefog_pg.set_machine_topology(ring, group=group)
        calls: dict[str, Callable[[torch.Tensor], Any]] = {
            "average": partial(bluefog_pg.neighbor_allreduce, group=group),
            "machines": partial(bluefog_pg.hierarchical_neighbor_allreduce, group=group),
            "gossip": partial(bluefog_pg.pair_gossip, target_rank=1, group=group),
            "ring": partial(
                bluefog_pg.neighbor_allreduce, self_weight=1.0, src_weights={1: 1.0, 3: 1.0},
                dst_weights=[1, 3], group=group,
            ),
        }  # fmt: skip
        for step in range(7):
            call = calls[odd if (step, rank) == (1, 0) else usual]
            begin = time.monotonic()
            told.append(inrank.outcome(extremes, call, torch.full((n,), 12.0 * step + rank)))
            time.sleep(max(0.0, begin + pause - time.monotonic()))
        dist.barrier()
    return told


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.3])
@pytest.mark.parametrize("n", [4, 40_000])
@pytest.mark.parametrize(
    ("usual", "odd"),
    [("average", "gossip"), ("average", "machines"), ("machines", "gossip"), ("machines", "ring")],
)
def test_nothing_is_averaged_of_two_calls(
    pool: harness.Pool, usual: str, odd: str, n: int, pause: float
) -> None:
    """Whoever does not know any more what belongs together hears so, until there is a new group."""
    found = pool.run(along_other_edges, usual, odd, n, pause, world=4, timeout=60)
    harness.raised(found[0][1], "Mismatch")
    for told in found:
        assert told[0] == (1.5, 1.5)
        for step, got in enumerate(told):
            right = pytest.approx((12.0 * step + 1.5,) * 2)
            assert isinstance(got, inrank.Raised) or got == right, (step, found)
    errors = [error for told in found for error in told if isinstance(error, inrank.Raised)]
    assert any("make a new group" in error.text for error in errors), errors


def among_names(rank: int, world: int) -> list[Any]:
    """Names begun in another order on each rank, and a call of unlike sizes by a name; and one
    without, in step with all others."""
    import bluefog_pg

    average = bluefog_pg.neighbor_allreduce
    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    average(torch.ones(4))
    unlike = torch.ones(5 if rank == 0 else 4)
    names = "abc" if rank else "cba"
    xs = {name: unlike if name == "a" else torch.ones(4) for name in names}
    works = {name: average(x, name=name, async_op=True) for name, x in xs.items()}
    told = [inrank.catch(works[name].wait) for name in "abc"]
    told.append(inrank.catch(average, unlike))
    steps = (torch.full((4,), 10.0 * step + rank) for step in range(3))
    return told + [inrank.outcome(extremes, average, x) for x in steps]


def test_names_have_no_part_in_the_order_of_calls(pool: harness.Pool) -> None:
    for a, b, c, unnamed, *later in pool.run(among_names, world=WORLD):
        assert b is c is None
        for error in (a, unnamed):
            assert "make a new group" not in harness.raised(error, "Mismatch").text
        assert later == [(10.0 * step + 1.0,) * 2 for step in range(3)]


def average_along(
    group: Any, x: torch.Tensor, of: list[int], to: list[int], *, async_op: bool = False
) -> Any:
    import bluefog_pg

    edges = {"src_weights": dict.fromkeys(of, 1.0), "dst_weights": to}
    return bluefog_pg.neighbor_allreduce(
        x, self_weight=1.0, **edges, group=group, async_op=async_op
    )


def out_of_step_one_way(rank: int, world: int) -> list[inrank.Raised | None]:
    """Rank 0's second call goes to rank 2, which expects something else; what rank 1 sends it then
    was meant for that one."""
    group = dist.new_group(timeout=timedelta(seconds=10.0 * harness.SLOW))
    average = partial(average_along, group)
    x = torch.ones(40_000)
    if rank == 0:
        average(x, [1], [])
        told = [inrank.catch(average, x[1:], [], [2])]
        works = [average(x, [1], [], async_op=True) for _ in range(2)]
        told += [inrank.catch(work.wait) for work in works]
    elif rank == 1:
        told = [inrank.catch(average, x, [], [0]) for _ in range(2)]
    else:
        told = [inrank.catch(average, x, [0], [])]
    dist.barrier()
    dist.destroy_process_group(group)
    return told


def test_both_ends_of_an_edge_hear_that_they_are_out_of_step(pool: harness.Pool) -> None:
    (odd, *received), (first, sent), (other,) = pool.run(out_of_step_one_way, world=3)
    for error in (odd, other):
        harness.raised(error, "Mismatch")
    assert first is None
    for error in (*received, sent):
        raised = harness.raised(error, "Mismatch", text="make a new group")
        assert raised.took() < harness.WITHIN


def out_of_step_with_one_of_two(rank: int, world: int) -> list[inrank.Raised | None]:
    """As above; but rank 0 then averages with rank 1 and with rank 3, which has not called."""
    group = dist.new_group(timeout=timedelta(seconds=10.0 * harness.SLOW))
    average = partial(average_along, group)
    x = torch.ones(4)
    calls = {
        0: [(x, [1], []), (x[1:], [2], [2]), (x, [1, 3], [])],
        1: [(x, [], [0])] * 2,
        2: [(x, [0], [0])],
        3: [],
    }
    told = [inrank.catch(average, *call) for call in calls[rank]]
    inrank.meet("told", world)
    dist.destroy_process_group(group)
    return told


def test_who_is_out_of_step_with_one_does_not_wait_for_another(pool: harness.Pool) -> None:
    first, odd, last = pool.run(out_of_step_with_one_of_two, world=4)[0]
    assert first is None
    harness.raised(odd, "Mismatch")
    assert harness.raised(last, "Mismatch", text="make a new group").took() < harness.WITHIN
