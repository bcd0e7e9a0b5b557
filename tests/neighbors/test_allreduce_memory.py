"""Results lie where ranks of the host can read them, and neighbors average from there next time."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import Ranks

MIB = 1 << 18  # elements of float32 in a MiB


def changed_at_once(rank: int, world: int, n: int, rounds: int) -> None:
    """Each result is changed in place as soon as it has been averaged, and nobody sees that."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    near = {rank, (rank + 1) % world, (rank - 1) % world}
    bad = []
    x = torch.empty(n)
    for step in range(rounds):
        x.fill_(rank + 10 * step)
        y = bluefog_pg.neighbor_allreduce(x)
        x.fill_(float("nan"))
        mean = sum(near) / len(near) + 10 * step
        if not torch.allclose(y, torch.full_like(y, mean)):
            bad.append(f"round {step}: {y.min()} to {y.max()}, not {mean}")
        x = y
    assert not bad, bad


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3, 4])
def test_nobody_sees_what_an_input_becomes(pool: harness.Pool, world: int) -> None:
    for n, rounds in ((MIB // 4 + 3, 40), (9 * MIB, 6)):
        pool.run(changed_at_once, n, rounds, world=world)


def many_shapes(rank: int, world: int) -> None:
    """Average parts, views and lists of results, large and small."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x = bluefog_pg.neighbor_allreduce(torch.full((3, MIB), float(rank)))
    mean = float(x[0, 0])
    means: list[float] = [0.0] * world
    dist.all_gather_object(means, mean)
    near = (rank, (rank - 1) % world, (rank - 2) % world)
    second = sum(means[i] for i in near) / 3
    bad = []

    def check(what: str, got: torch.Tensor) -> None:
        if not torch.allclose(got, torch.full_like(got, second)):
            bad.append(f"{what}: {got.min()} to {got.max()}, not {second}")

    for each in (x[1], x[:, 5:], x.t(), x[2, 7:-3], x.double()):
        got = bluefog_pg.neighbor_allreduce(each)
        check(f"{each.dtype} {list(each.shape)}", got)
        if got.shape != each.shape:
            bad.append(f"{got.shape} of {each.shape}")
    parts = [x[0], x[1], x[2, :10], x[2, 10:]]
    several = bluefog_pg.neighbor_allreduce(parts)
    for i, (got, _) in enumerate(zip(several, parts, strict=True)):
        check(f"part {i} of a list", got)
    again = bluefog_pg.neighbor_allreduce(list(several))
    both = [(a.shape, b.shape) for a, b in zip(again, several, strict=True)]
    bad += [f"{a} of {b}, in a list" for a, b in both if a != b]
    assert not bad, bad


def test_parts_of_results_are_averaged(pool: harness.Pool) -> None:
    pool.run(many_shapes)


def in_a_child(rank: int, world: int) -> None:
    """A forked child keeps results as they were, whatever its parent does to them."""
    import bluefog_pg

    bluefog_pg.set_topology()
    results = [bluefog_pg.neighbor_allreduce(torch.full((MIB,), float(rank))) for _ in range(80)]
    mean = float(results[0][0])
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tells)
        os.read(told, 1)
        sees = all(bool(r.eq(mean).all()) for r in results)
        results[0].fill_(math.nan)
        results.clear()  # These are more than are kept for the next.
        os._exit(0 if sees else 1)
    results[0].fill_(math.nan)
    kept = results[1:20]
    del results
    others = [bluefog_pg.neighbor_allreduce(torch.full((MIB,), 99.0)) for _ in range(80)]
    os.close(told)
    os.close(tells)
    assert os.waitpid(child, 0)[1] == 0
    assert all(r.eq(mean).all() for r in kept)
    assert all(r.eq(99).all() for r in others)


def test_a_forked_child_has_results_of_its_own(pool: harness.Pool) -> None:
    pool.run(in_a_child, world=2)


def resized(rank: int, world: int) -> None:
    """A result is resized as other tensors are; but what shares its memory with others is not."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x, y, z = (bluefog_pg.neighbor_allreduce(torch.ones(MIB)) for _ in range(3))
    x.resize_(2 * MIB)
    y.untyped_storage().resize_(0)
    z.set_()
    again = bluefog_pg.neighbor_allreduce(x[:MIB])
    one, _ = bluefog_pg.neighbor_allreduce([torch.ones(MIB), torch.ones(MIB)])
    error = inrank.catch(one.untyped_storage().resize_, 0)
    assert again.eq(1).all()
    assert y.untyped_storage().nbytes() == 0
    assert z.numel() == 0
    assert error is not None


def test_results_can_be_resized(pool: harness.Pool) -> None:
    pool.run(resized, world=2)


def shared_bytes() -> int:
    """Return how many bytes of this process's memory are shared."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssShmem:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("no RssShmem")


def held(rank: int, world: int) -> list[int]:
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.ones(MIB)
    bluefog_pg.neighbor_allreduce(x)
    before = shared_bytes()
    results = [bluefog_pg.neighbor_allreduce(x) for _ in range(200)]
    most = shared_bytes()
    results.clear()
    return [most - before, shared_bytes() - before]


def test_what_is_let_go_is_given_back(pool: harness.Pool) -> None:
    """All but 64 MiB, which are kept for the next results, are given back."""
    for most, left in pool.run(held, world=2):
        assert most >= 120 << 20
        assert left <= 70 << 20


def outliving(rank: int, world: int) -> None:
    import bluefog_pg

    bluefog_pg.set_topology()
    x = bluefog_pg.neighbor_allreduce(torch.full((MIB,), float(rank)))
    mean = float(x[0])
    x = bluefog_pg.neighbor_allreduce(x)
    dist.destroy_process_group()
    x += 1
    assert x.eq(x[0]).all(), f"{x.min()} to {x.max()}"
    assert world != 2 or float(x[0]) == mean + 1, f"{x[0]}, not {mean + 1}"


def test_results_outlive_their_group() -> None:
    with Ranks(2) as ranks:
        ranks.start(outliving, world=2, store="s")
        ranks.join()


def offering_when_killed(rank: int, world: int) -> float | None:
    """Rank 1 is killed while it offers what rank 0 has not read yet."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    x = bluefog_pg.neighbor_allreduce(torch.full((9 * MIB,), float(rank)))
    weights: dict[str, Any] = {"self_weight": 1.0, "src_weights": {1 - rank: 1.0}}
    dist.barrier()
    if rank == 1:
        work = bluefog_pg.neighbor_allreduce(x, **weights, dst_weights=[0], async_op=True)
        time.sleep(0.5)  # The engine's thread has offered it then.
        inrank.mark("offers")
        work.wait()
        return None
    inrank.gate("killed")
    return float(bluefog_pg.neighbor_allreduce(x, **weights, dst_weights=[])[-1])


def test_what_a_killed_rank_has_offered_is_read() -> None:
    with Ranks(2) as ranks:
        ranks.start(offering_when_killed, world=2, store="s")
        ranks.at("offers", 1)
        ranks.kill(1)
        ranks.open("killed")
        assert ranks.values(dead={1}) == {0: 1.0}
