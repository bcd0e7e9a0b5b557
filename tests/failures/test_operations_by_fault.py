"""Every operation meets each way in which a rank may be missing when others call it."""

from __future__ import annotations

import ctypes
import os
from datetime import timedelta

import pytest
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import SLOW, WITHIN, Ranks
from tests.support.stranded_ops import OPERATIONS

LIMIT = 0.5 * SLOW  # seconds, where a rank is waited for
Told = dict[str, inrank.Raised | None]


def each_in_its_group(rank: int, world: int, how: str) -> Told:
    """The last rank goes, or is stopped, before the others call anything."""
    limit = timedelta(seconds=LIMIT if how == "stop" else 30)
    groups = {name: dist.new_group(timeout=limit) for name in OPERATIONS}
    inrank.mark("up")
    if rank == world - 1:
        inrank.gate("leave", limit=60)
        if how == "os._exit":
            os._exit(3)
        elif how == "segmentation fault":
            ctypes.string_at(0)
        elif how == "destroy":
            dist.destroy_process_group()
        if how != "stop":
            return {}
    inrank.gate("gone")
    return {
        name: inrank.catch(call, rank, world, groups[name]) for name, call in OPERATIONS.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "exit", "os._exit", "segmentation fault", "destroy"])
def test_one_that_is_gone_is_named_by_every_operation(how: str) -> None:
    with Ranks(3) as ranks:
        ranks.start(each_in_its_group, how, world=3, store="s")
        ranks.at("up")
        if how == "SIGKILL":
            ranks.kill(2)
        ranks.open("leave")
        if how in ("exit", "destroy"):
            ranks.answer(2)
        if how == "exit":
            assert ranks.dismiss(2) == 0
        if how in ("os._exit", "segmentation fault"):
            ranks.procs[2].wait()
        ranks.open("gone")
        for rank in (0, 1):
            for name, error in ranks.answer(rank, 30).items():
                took = harness.raised(error, "PeerFailed", ranks=[2]).took()
                assert took < WITHIN, f"{name}, rank {rank}: {took:.2f} s"


@pytest.mark.slow
def test_one_that_is_stopped_is_named_by_every_operation() -> None:
    with Ranks(3) as ranks:
        ranks.start(each_in_its_group, "stop", world=3, store="s")
        ranks.at("up")
        ranks.stop(2)
        ranks.open("leave")
        ranks.open("gone")
        told = [ranks.answer(rank, 60) for rank in (0, 1)]
        for name in OPERATIONS:
            errors = [harness.raised(t[name], "CollectiveTimeout", ranks=[2]) for t in told]
            # The limit of one rank is the other's, too.
            began = min(error.began for error in errors)
            for error in errors:
                took = error.ended - began
                assert 0.9 * LIMIT < took < LIMIT + WITHIN, f"{name}: {errors}"
        ranks.cont(2)
        # The rank wakes up to groups whose other ranks have given up.
        for name, error in ranks.answer(2, 60).items():
            if name in ("recv", "neighbor_allreduce"):
                # Such a call is small: it was sent before, and needs nobody.
                assert error is None, f"{name}: {error}"
            else:
                took = harness.raised(error, "DistBackendError").took()
                assert took < LIMIT + WITHIN, f"{name}: {took:.2f} s"
        assert set(ranks.leave().values()) == {0}
