"""init and shutdown may be called twice, and again, and calls before and after them raise."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any
from unittest import mock

import networkx as nx
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import Ranks
from tests.support.operations import ANSWERS, MACHINE_SIZE, answers, place_by_host

CALLS = (*ANSWERS, "is_homogeneous", "in_neighbor_ranks", "load_topology", "set_topology")


def without_a_group() -> dict[str, inrank.Raised | None]:
    """Return what calls raise that need a group."""
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


def nobody(n: int) -> nx.DiGraph:
    return nx.empty_graph(n, create_using=nx.DiGraph)


def life(rank: int, world: int) -> dict[str, Any]:
    """Live a program's life: nothing, init (twice), shutdown (twice), and init again."""
    import bluefog_pg

    def where(name: str) -> dict[str, Any]:
        method = f"file://{inrank.directory() / name}"
        return {"init_method": method, "rank": rank, "world_size": world}

    def averaged() -> list[Any]:
        mean = bluefog_pg.neighbor_allreduce(torch.tensor([float(rank)])).item()
        return [bluefog_pg.in_neighbor_ranks(), bluefog_pg.is_topo_weighted(), mean]

    told: dict[str, Any] = {"before": without_a_group()}
    with mock.patch.dict(os.environ, {MACHINE_SIZE: "1"}):
        told["nothing"] = bluefog_pg.shutdown()
        bluefog_pg.init(bluefog_pg.topology_util.RingGraph, True, **where("one"))
        told["ring"] = averaged()
        bluefog_pg.init(nobody)
        told["nobody"] = averaged()
        bluefog_pg.init()
        told["default"] = averaged()
        dist.barrier()
        bluefog_pg.shutdown()
        bluefog_pg.shutdown()
    told["answers"] = answers()
    told["after"] = without_a_group()
    bluefog_pg.init(**where("two"))
    told["again"] = [averaged(), answers()]
    dist.barrier()
    bluefog_pg.shutdown()
    return told


def test_the_life_of_a_program() -> None:
    with Ranks(2) as ranks:
        ranks.start(life)
        values = ranks.values(60)
    for rank, told in values.items():
        assert told["nothing"] is None
        assert told["ring"] == [[1 - rank], True, 0.5]
        assert told["nobody"] == [[], False, rank]
        assert told["default"] == [[1 - rank], False, 0.5]
        assert told["answers"] == [rank, 2, 0, 1, rank, 2, True]
        assert told["again"] == [told["default"], [rank, 2, *place_by_host(rank, 2), True]]
        for error in told["before"].values():
            harness.raised(error, "ValueError", text="bluefog_pg.init()")
            assert "RuntimeError" in error.kinds
        for name, error in told["after"].items():
            if name in (*ANSWERS, "is_homogeneous"):
                assert error is None
            else:
                harness.raised(error, "RuntimeError", text="bluefog_pg.init()")


def first_bytes() -> dict[str, bytes]:
    """Return how libc's functions that map memory begin, which a hook would replace by a jump."""
    libc = ctypes.CDLL(None)
    return {
        name: ctypes.string_at(ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0, 16)
        for name in ("mmap", "munmap", "mremap", "madvise", "brk", "sbrk", "shmat", "shmdt")
    }


def by_mpi(rank: int, world: int) -> bool:
    before = first_bytes()
    inrank.init("mpi", rank, world)
    dist.barrier()
    libraries = Path("/proc/self/maps").read_text()
    dist.destroy_process_group()
    assert "UCX_MEM_MMAP_HOOK_MODE" not in os.environ
    return "libmpi" in libraries and first_bytes() == before


def test_mpi_leaves_libc_as_it_is() -> None:
    """UCX, which the wheel's Open MPI loads, replaces these functions by default."""
    with Ranks(2, env={"BLUEFOG_TRANSPORT": "mpi"}) as ranks:
        ranks.start(by_mpi)
        assert ranks.values() == {0: True, 1: True}


def in_a_lean_environment(rank: int, world: int) -> float:
    """A service has no HOME, and a container not the folder that the host's TMPDIR names."""
    os.environ.pop("HOME", None)
    os.environ["TMPDIR"] = "/nonexistent/folder"
    inrank.init("mpi", rank, world)
    x = torch.ones(9)
    dist.all_reduce(x)
    dist.destroy_process_group()
    assert "HOME" not in os.environ
    return x[0].item()


def test_mpi_without_home_and_temporary_folder() -> None:
    with Ranks(2, env={"BLUEFOG_TRANSPORT": "mpi"}) as ranks:
        ranks.start(in_a_lean_environment)
        assert ranks.values() == {0: 2.0, 1: 2.0}
