"""init and shutdown: twice, again, without a launcher; and what is raised before and after."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import harness
import inrank
from harness import Ranks
from operations import ANSWERS, MACHINE_SIZE, answers, place_by_host

pytestmark = harness.only_bluefog

CALLS = (*ANSWERS, "is_homogeneous", "in_neighbor_ranks", "load_topology", "set_topology")


def without_a_group() -> dict[str, inrank.Raised | None]:
    """What is raised by what needs one."""
    import bluefog_pg

    x = torch.ones(3)
    calls = {name: getattr(bluefog_pg, name) for name in CALLS}
    calls |= {
        "neighbor_allreduce": lambda: bluefog_pg.neighbor_allreduce(x),
        "neighbor_allgather": lambda: bluefog_pg.neighbor_allgather(x),
        "neighbor_alltoall": lambda: bluefog_pg.neighbor_alltoall([x]),
        "pair_gossip": lambda: bluefog_pg.pair_gossip(x, 0),
        "hierarchical": lambda: bluefog_pg.hierarchical_neighbor_allreduce(x),
    }
    return {name: inrank.catch(call) for name, call in calls.items()}


def life(rank: int, world: int) -> dict[str, Any]:
    """Of a program: nothing, init (twice), shutdown (twice), and init again."""
    import bluefog_pg

    def where(name: str) -> dict[str, Any]:
        method = f"file://{inrank.directory() / name}"
        return {"init_method": method, "rank": rank, "world_size": world}

    told: dict[str, Any] = {"before": without_a_group()}
    with mock.patch.dict(os.environ, {MACHINE_SIZE: "2"}):
        told["nothing"] = bluefog_pg.shutdown()
        bluefog_pg.init(bluefog_pg.topology_util.RingGraph, **where("one"))
        told["ring"] = bluefog_pg.in_neighbor_ranks()
        mean = bluefog_pg.neighbor_allreduce(torch.tensor([float(rank)]))
        told["mean"] = mean.item()
        bluefog_pg.init(bluefog_pg.topology_util.StarGraph, is_weighted=True)
        told["star"] = [bluefog_pg.in_neighbor_ranks(), bluefog_pg.is_topo_weighted()]
        bluefog_pg.init()
        told["default"] = [bluefog_pg.in_neighbor_ranks(), bluefog_pg.is_topo_weighted()]
        dist.barrier()
        bluefog_pg.shutdown()
        bluefog_pg.shutdown()
    told["answers"] = answers()
    told["after"] = without_a_group()
    bluefog_pg.init(**where("two"))
    told["again"] = [bluefog_pg.neighbor_allreduce(torch.ones(2)).tolist(), answers()]
    dist.barrier()
    bluefog_pg.shutdown()
    return told


def test_the_life_of_a_program() -> None:
    with Ranks(4) as ranks:
        ranks.start(life)
        values = ranks.values(60)
    for rank, told in values.items():
        near = sorted({(rank + 1) % 4, (rank - 1) % 4})
        assert told["nothing"] is None
        assert told["ring"] == near
        assert told["mean"] == pytest.approx((rank + sum(near)) / 3)
        assert told["star"] == [[0] if rank else [1, 2, 3], True]
        assert told["default"] == [sorted({(rank - 1) % 4, (rank - 2) % 4}), False]
        assert told["answers"] == [rank, 4, rank % 2, 2, rank // 2, 2, True]
        assert told["again"] == [[1, 1], [rank, 4, *place_by_host(rank, 4), True]]
        for error in told["before"].values():
            harness.raised(error, "ValueError", text="bluefog_pg.init()")
            assert "RuntimeError" in error.kinds
        for name, error in told["after"].items():
            if name in (*ANSWERS, "is_homogeneous"):
                assert error is None
            else:
                harness.raised(error, "RuntimeError", text="bluefog_pg.init()")


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    with Ranks(2) as ranks:
        yield ranks


def lonely(rank: int, world: int) -> list[Any]:
    """As if nothing had started this process."""
    import bluefog_pg

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: os.environ.pop(name) for name in names}
    try:
        bluefog_pg.init()
        x = bluefog_pg.neighbor_allreduce(torch.full((2,), float(rank)))
        told = [answers(), x.tolist(), bluefog_pg.in_neighbor_ranks()]
        bluefog_pg.shutdown()
    finally:
        os.environ.update(kept)
    return told


def test_a_process_that_nothing_has_started(two: Ranks) -> None:
    two.start(lonely)
    for rank, told in two.values(60).items():
        assert told == [[0, 1, 0, 1, 0, 1, True], [rank] * 2, []]


def of_another(rank: int, world: int) -> inrank.Raised | None:
    import bluefog_pg

    path = inrank.directory() / "gloo"
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    error = inrank.catch(bluefog_pg.init)
    dist.barrier()
    dist.destroy_process_group()
    return error


def test_init_beside_another_backend(two: Ranks) -> None:
    two.start(of_another)
    for error in two.values(60).values():
        harness.raised(error, "TypeError", text="gloo")
