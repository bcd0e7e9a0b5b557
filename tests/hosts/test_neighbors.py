"""Neighbor operations run over two hosts of two ranks each, which are the machines."""

from __future__ import annotations

import math
from typing import Any

import networkx as nx
import pytest
import torch
import torch.distributed as dist

from tests.support import hosts, oracle
from tests.support.harness import Ranks
from tests.support.operations import OPERATIONS, answers, tensors

KINDS = (torch.float32, torch.bfloat16, torch.float64)
SIZES = (1, 1000, 100_003)


def averages(rank: int, world: int) -> None:
    """Average over the default topology, half of whose edges cross between the hosts."""
    import bluefog_pg

    near = {(rank - 1) % world: 1 / 3, (rank - 2) % world: 1 / 3}
    bad = []
    for dtype in KINDS:
        for n in SIZES:
            xs = [oracle.values(dtype, n, 1, r) for r in range(world)]
            want = oracle.neighbor(xs, rank, 1 / 3, near)
            given = [xs[rank], xs[rank].double(), xs[rank][:1]]
            told = {"one": oracle.differs(bluefog_pg.neighbor_allreduce(xs[rank]), *want)}
            told["list"] = oracle.differs(bluefog_pg.neighbor_allreduce(given)[0], *want)
            peer = (rank + 2) % world  # The peer is on the other host.
            want = oracle.neighbor(xs, rank, 0.5, {peer: 0.5})
            told["gossip"] = oracle.differs(bluefog_pg.pair_gossip(xs[rank], peer), *want)
            bad += [f"{what}, {n} {dtype}: {text}" for what, text in told.items() if text]
    assert not bad, bad


def gathers(rank: int, world: int) -> None:
    """Gather and swap rows between neighbors."""
    import bluefog_pg

    sources = sorted([(rank - 1) % world, (rank - 2) % world])
    bad = []
    for n in (0, *SIZES):
        xs = [oracle.bits(torch.int16, (r + 1) * n, r) for r in range(world)]
        got = bluefog_pg.neighbor_allgather(xs[rank])
        told = {"gather": oracle.moved(got, torch.cat([xs[r] for r in sources]))}
        others = [r for r in range(world) if r != rank]
        parts = {(i, j): xs[i][: j * n] for i in range(world) for j in range(world)}
        got = bluefog_pg.neighbor_alltoall(
            [parts[rank, r] for r in others[::-1]], src_ranks=others, dst_ranks=others[::-1]
        )
        for t, r in zip(got, others, strict=True):
            told[f"from rank {r}"] = oracle.moved(t, parts[r, rank])
        bad += [f"{what}, {n}: {text}" for what, text in told.items() if text]
    assert not bad, bad


def by_machines(rank: int, world: int) -> list[Any]:
    """Average by machines: each host is one, alone and then with the other one's mean."""
    import bluefog_pg

    told: list[Any] = []
    for graph in (nx.DiGraph([(0, 1), (1, 0)]), nx.empty_graph(2, nx.DiGraph)):
        bluefog_pg.set_machine_topology(nx.DiGraph(graph))
        for n in SIZES:
            x = torch.full((n,), float(rank))
            mean = bluefog_pg.hierarchical_neighbor_allreduce(x)
            told.append(mean.unique().tolist())
    return told


def gradients(rank: int, world: int) -> list[float]:
    """Return sums and gradients of every operation.

    The gradient of a sum is how often an element counts, for all ranks together.
    """
    import bluefog_pg

    bluefog_pg.set_machine_topology(nx.complete_graph(2, nx.DiGraph))
    group = dist.group.WORLD
    totals = []
    for op in OPERATIONS:
        x = torch.ones(7, dtype=torch.float64, requires_grad=True)
        out = tensors(OPERATIONS[op](x, group))
        total = torch.stack([t.double().sum() for t in out]).sum()
        total.backward()
        both = torch.stack([total.detach(), x.grad.sum()])
        dist.all_reduce(both)
        totals += both.tolist()
    return totals


def all_of_it(rank: int, world: int) -> list[Any]:
    """Call everything first over the group that spans hosts, and return what ranks tell."""
    where = answers()
    averages(rank, world)
    gathers(rank, world)
    return [where, by_machines(rank, world), gradients(rank, world)]


@pytest.mark.slow
def test_every_operation_over_two_hosts() -> None:
    with hosts.network(2) as pair, Ranks(4, hosts=pair, destroy=True) as ranks:
        ranks.start(all_of_it, world=4, store="s")
        told = ranks.values(90)
        assert set(ranks.leave().values()) == {0}
    for rank, (where, means, totals) in told.items():
        assert where == [rank, 4, rank % 2, 2, rank // 2, 2, True]
        assert means == [[1.5]] * 3 + [[2 * (rank // 2) + 0.5]] * 3
        # The maps are linear, so the gradients at ones sum up to the sum of all results.
        assert all(map(math.isclose, totals[::2], totals[1::2]))
        assert math.isclose(totals[0], 28)
