"""Calls with tensors that have no memory, or in destroyed groups, raise errors in the caller.

messages/test_arguments.py has what every call says to bad arguments.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.support import harness, inrank


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
