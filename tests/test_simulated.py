"""Our logic for accelerators on a simulated one: order of streams, lives of tensors, right results.

Not GPU tests: these are in `make gpu`. See tests/simulated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import networkx as nx
import pytest
import torch
import torch.distributed as dist

import harness
import inrank
import oracle
import simulated

pytestmark = harness.only_bluefog
DEVICE = "simulated"
# A kernel that takes so long stands for what a GPU still has to do when the host goes on.
SLOW_KERNEL = 120  # milliseconds
PROMPT = 0.06 * harness.SLOW  # seconds that a call may keep the host, for its neighbours to call


@pytest.fixture(scope="module", autouse=True)
def built() -> Iterator[None]:
    """Before the ranks, of which each would build it."""
    simulated.build()
    yield


def run(body: Callable[..., Any], world: int, *args: Any, plugin: bool = True) -> list[Any]:
    chosen = f"simulated:simccl:{simulated.PLUGIN if plugin else '/nowhere'}"
    env = {"BLUEFOG_ACCELERATOR": chosen, "GLOO_SOCKET_IFNAME": "lo"}
    with harness.Ranks(world, env=env) as ranks:
        ranks.start(begun, body.__qualname__, world, args)
        return [o.value for o in ranks.join(60)]


def begun(rank: int, world: int, name: str, size: int, args: tuple[Any, ...]) -> Any:
    simulated.load()
    dist.init_process_group(
        f"cpu:bluefog,{DEVICE}:bluefog",
        init_method=f"file://{inrank.directory() / 'met'}", rank=rank, world_size=size,
    )  # fmt: skip
    try:
        return globals()[name](rank, size, *args)
    finally:
        dist.destroy_process_group()


def values(dtype: torch.dtype, n: int, rank: int) -> torch.Tensor:
    return oracle.values(dtype, n, 7, rank)


def averages(rank: int, world: int) -> list[str]:
    import bluefog_pg

    bluefog_pg.set_topology()
    bad = []
    near = bluefog_pg.in_neighbor_ranks()
    share = 1 / (1 + len(near))
    for dtype in (*oracle.FLOATS, torch.complex64):
        for n in (0, 1, 7, 1003, 40_001):
            xs = [values(dtype, n, r) for r in range(world)]
            want = oracle.neighbor(xs, rank, share, dict.fromkeys(near, share))
            x = xs[rank].to(DEVICE)
            work = bluefog_pg.neighbor_allreduce(x, async_op=True)
            now = bluefog_pg.neighbor_allreduce(x)
            work.wait()
            for got in (now, work.result()[0]):
                wrong = oracle.differs(got.cpu(), *want)
                bad += [f"{dtype} {n}: {wrong}"] if wrong else []
    return bad


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("plugin", [True, False], ids=["kernels", "aten"])
def test_averages(world: int, plugin: bool) -> None:
    assert run(averages, world, plugin=plugin) == [[]] * world


def others(rank: int, world: int) -> list[Any]:
    """Lists, weights that the senders give, rows, parts, pairs, machines."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world, connect_style=1))
    (left,), (right,) = bluefog_pg.in_neighbor_ranks(), bluefog_pg.out_neighbor_ranks()
    x = torch.full((3,), float(rank), device=DEVICE)
    several = bluefog_pg.neighbor_allreduce([x, x.double() + 1, x + 2])
    scaled = bluefog_pg.neighbor_allreduce(
        x, self_weight=0.5, src_weights={left: 0.5}, dst_weights={right: 3.0}
    )
    rows = bluefog_pg.neighbor_allgather(x[: rank + 1].repeat(2)[: rank + 1])
    parts = bluefog_pg.neighbor_alltoall([x[:2]])
    pair = bluefog_pg.pair_gossip(x, rank ^ 1)
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    group = dist.new_group()
    bluefog_pg.set_machine_topology(nx.complete_graph(world // 2, nx.DiGraph), group=group)
    mean = bluefog_pg.hierarchical_neighbor_allreduce(
        torch.arange(5.0).to(DEVICE) + rank, group=group
    )
    return [
        [t[0].item() for t in several], scaled[0].item(), rows.cpu().tolist(),
        parts[0].cpu().tolist(), pair[0].item(), mean.cpu().tolist(), str(mean.device),
    ]  # fmt: skip


def test_other_operations_between_neighbours() -> None:
    for rank, got in enumerate(run(others, 4)):
        left = (rank + 1) % 4
        mean = (rank + left) / 2
        assert got == [
            [mean, mean + 1, mean + 2], 0.5 * rank + 1.5 * left, [float(left)] * (left + 1),
            [float(left)] * 2, rank // 2 * 2 + 0.5, [1.5 + i for i in range(5)], f"{DEVICE}:0",
        ]  # fmt: skip


def ordered(rank: int, world: int) -> list[str]:
    """A slow kernel makes the input; another stream, and the memory's next user, come too early
    where anything is missing."""
    import bluefog_pg

    device = simulated.load()
    bluefog_pg.set_topology()
    near = [rank, *bluefog_pg.in_neighbor_ranks()]
    n, mean = 50_000, sum(near) / len(near) + 1
    bad = []
    bluefog_pg.neighbor_allreduce(torch.zeros(8, device=DEVICE))
    for async_op in (True, False):
        x = torch.empty(n, device=DEVICE)
        device.fill(x, rank + 1.0, SLOW_KERNEL)
        begin = time.monotonic()
        got: Any = bluefog_pg.neighbor_allreduce(x, async_op=async_op)
        del x
        again = [torch.empty(n, device=DEVICE) for _ in range(4)]  # where the input was
        if async_op:
            got.wait()
        if (took := time.monotonic() - begin) > PROMPT:
            bad.append(f"async_op={async_op} kept the host for {took} s")
        if device.is_idle():
            bad.append(f"async_op={async_op}: nothing is left to be done")
        out = got.result()[0] if async_op else got
        del got
        seen = torch.empty(n, device=DEVICE)
        device.copy(seen, out, 0)
        del out, again
        if not torch.allclose(seen.cpu(), torch.tensor(mean)):
            bad.append(f"async_op={async_op}: {seen.cpu()[:3]}, not {mean}")
    return bad


@pytest.mark.parametrize("world", [2, 4])
def test_streams_keep_their_order_and_tensors_live_long_enough(world: int) -> None:
    assert run(ordered, world) == [[]] * world


def unwaited(rank: int, world: int) -> list[Any]:
    """A Work that is dropped; a future; a wait with a limit, from a third stream."""
    import bluefog_pg

    device = simulated.load()
    bluefog_pg.set_topology()
    x = torch.empty(1000, device=DEVICE)
    device.fill(x, float(rank), SLOW_KERNEL)
    bluefog_pg.neighbor_allreduce(x, async_op=True)
    work = bluefog_pg.neighbor_allreduce(x, async_op=True)
    early = inrank.catch(work.wait, timeout=timedelta(milliseconds=5))
    was_completed = work.is_completed()
    before = device.exchange_stream(5)
    future = work.get_future()
    mean = future.wait()[0].cpu()[0].item()
    device.exchange_stream(before)
    return [early and early.kind, was_completed, mean, work.is_completed()]


def test_works() -> None:
    assert run(unwaited, 2) == [["CollectiveTimeout", False, 0.5, True]] * 2


def untouched(rank: int, world: int) -> list[Any]:
    """c10d's own calls: the backend's Work, batches of one and of both devices, barriers."""
    device = simulated.load()
    x = torch.empty(1000, device=DEVICE)
    device.fill(x, rank + 1.0, SLOW_KERNEL)
    work = dist.all_reduce(x, async_op=True)
    kinds = [type(work).__name__]
    work.wait()
    backend: Any = dist.group.WORLD._get_backend(torch.device(DEVICE))  # type: ignore[union-attr]
    here, there = torch.ones(2), torch.full((2,), float(rank), device=DEVICE)
    got = torch.empty(2, device=DEVICE)
    backend._start_coalescing()
    backend.allreduce([here])
    backend.send([there], (rank + 1) % world, 0)
    backend.recv([got], (rank - 1) % world, 0)
    batch = backend._end_coalescing()
    kinds.append(type(batch).__name__)
    batch.wait()
    ops = [dist.P2POp(dist.isend, there, (rank + 1) % world)]
    ops.append(dist.P2POp(dist.irecv, got, (rank - 1) % world))
    works = dist.batch_isend_irecv(ops)
    for each in works:
        each.wait()
    dist.barrier()
    return [x.cpu()[0].item(), here[0].item(), got.cpu()[0].item(), len(works), kinds]


def test_what_c10d_calls_comes_through() -> None:
    for rank, told in enumerate(run(untouched, 3)):
        assert told == [6.0, 3.0, float((rank - 1) % 3), 1, ["Work", "BatchWork"]]


def fitted(device: str, order: str, rank: int) -> list[torch.Tensor]:
    import bluefog_pg

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    xs = torch.randn(10, 4, 3, generator=torch.Generator().manual_seed(rank))
    net.to(device)
    plain = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer = bluefog_pg.DistributedOptimizer(plain, net, order=order, bucket_bytes=64)
    for x in xs.to(device):
        optimizer.zero_grad()
        (net(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
    optimizer.close()
    return [param.detach().cpu() for param in net.parameters()]


def trained(rank: int, world: int, order: str) -> float:
    """How far parameters that were trained there are from those of a CPU."""
    import bluefog_pg

    bluefog_pg.set_topology()
    there, here = fitted(DEVICE, order, rank), fitted("cpu", order, rank)
    return max((a - b).abs().max().item() for a, b in zip(there, here, strict=True))


@pytest.mark.parametrize("order", ["awc", "atc"])
def test_optimizers(order: str) -> None:
    assert max(run(trained, 4, order)) < 1e-6
