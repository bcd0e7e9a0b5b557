"""These bodies call operations on an accelerator: stream order, tensors' lives, wrong devices."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import networkx as nx
import torch
import torch.distributed as dist

from tests.support import inrank, oracle
from tests.support.on_device import PROMPT, SLOW_KERNEL
from tests.support.operations import group_of_machines


def values(dtype: torch.dtype, n: int, rank: int) -> torch.Tensor:
    return oracle.values(dtype, n, 7, rank)


def averages(device: Any, rank: int, world: int) -> None:
    import bluefog_pg

    bluefog_pg.set_topology()
    bad = []
    near = bluefog_pg.in_neighbor_ranks()
    share = 1 / (1 + len(near))
    for dtype in (*oracle.FLOATS, torch.complex64):
        for n in (0, 1, 7, 1003, 40_001):
            xs = [values(dtype, n, r) for r in range(world)]
            want = oracle.neighbor(xs, rank, share, dict.fromkeys(near, share))
            x = xs[rank].to(device.name)
            work = bluefog_pg.neighbor_allreduce(x, async_op=True)
            now = bluefog_pg.neighbor_allreduce(x)
            work.wait()
            for got in (now, work.result()[0]):
                wrong = oracle.differs(got.cpu(), *want)
                bad += [f"{dtype} {n}: {wrong}"] if wrong else []
    assert not bad, bad


def others(device: Any, rank: int, world: int) -> list[Any]:
    """Lists, weights that the senders give, rows, parts, pairs, machines."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world, connect_style=1))
    (left,), (right,) = bluefog_pg.in_neighbor_ranks(), bluefog_pg.out_neighbor_ranks()
    x = torch.full((3,), float(rank), device=device.name)
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
        torch.arange(5.0).to(device.name) + rank, group=group
    )
    return [
        [t[0].item() for t in several], scaled[0].item(), rows.cpu().tolist(),
        parts[0].cpu().tolist(), pair[0].item(), mean.cpu().tolist(), str(mean.device),
    ]  # fmt: skip


def ordered(device: Any, rank: int, world: int) -> None:
    """Average what a slow kernel makes, and read the result on time.

    Where an order is missing, another stream or the next user of the memory comes too early.
    """
    import bluefog_pg

    bluefog_pg.set_topology()
    near = [rank, *bluefog_pg.in_neighbor_ranks()]
    n, mean = 50_000, sum(near) / len(near) + 1
    bad = []
    bluefog_pg.neighbor_allreduce(torch.zeros(8, device=device.name))
    for async_op in (True, False):
        x = torch.empty(n, device=device.name)
        device.fill(x, rank + 1.0, SLOW_KERNEL)
        begin = time.monotonic()
        got: Any = bluefog_pg.neighbor_allreduce(x, async_op=async_op)
        del x
        # One of these takes the memory that the input had.
        again = [torch.empty(n, device=device.name) for _ in range(4)]
        if async_op:
            got.wait()
        if (took := time.monotonic() - begin) > PROMPT:
            bad.append(f"async_op={async_op} kept the host for {took} s")
        if device.is_idle():
            bad.append(f"async_op={async_op}: nothing is left to be done")
        out = got.result()[0] if async_op else got
        del got
        seen = torch.empty(n, device=device.name)
        device.copy(seen, out, 0)
        del out, again
        if not torch.allclose(seen.cpu(), torch.tensor(mean)):
            bad.append(f"async_op={async_op}: {seen.cpu()[:3]}, not {mean}")
    assert not bad, bad


def unwaited(device: Any, rank: int, world: int) -> list[Any]:
    """Drop a Work, use a future, and wait for a Work with a limit and from a third stream."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.empty(1000, device=device.name)
    # The first use of a kernel takes longer, and loading a kernel waits for others.
    device.fill(x, 0.0, 0)
    bluefog_pg.neighbor_allreduce(x)
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


def untouched(device: Any, rank: int, world: int) -> list[Any]:
    """Make c10d's own calls: the backend's Work, batches of one and of both devices, barriers."""
    x = torch.empty(1000, device=device.name)
    device.fill(x, rank + 1.0, SLOW_KERNEL)
    work = dist.all_reduce(x, async_op=True)
    kinds = [type(work).__name__]
    work.wait()
    backend: Any = dist.group.WORLD._get_backend(torch.device(device.name))
    here, there = torch.ones(2), torch.full((2,), float(rank), device=device.name)
    got = torch.empty(2, device=device.name)
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


def bind(device: Any, rank: int, world: int) -> torch.device:
    """Replace the process group by one that is bound to a device, and return the device."""
    dist.destroy_process_group()
    own = torch.device(device.name, 0)
    dist.init_process_group(
        f"cpu:bluefog,{device.name}:bluefog",
        init_method=f"file://{inrank.directory() / 'bound'}", rank=rank, world_size=world,
        device_id=own,
    )  # fmt: skip
    return own


def split(device: Any, rank: int, world: int) -> list[Any]:
    """Split a group that is bound to a device into halves without one rank, three times.

    torch gives the second halves the name of the first ones, which are gone, and the third halves
    another one, as the second ones are still there.
    """
    import bluefog_pg

    own = bind(device, rank, world)
    parent: Any = dist.group.WORLD._get_backend(own)
    told: list[Any] = []
    for keeps in (False, True, True):
        part = dist.split_group(split_ranks=[[0, 2], [1, 3]])
        for on in (own, "cpu") if part else ():
            x = torch.full((4,), rank + 1.0, device=on)
            dist.all_reduce(x, group=part)
            mean = bluefog_pg.neighbor_allreduce(
                torch.full((4,), rank + 1.0, device=on), group=part
            )
            told += [x[0].item(), mean[0].item()]
        if part and not keeps:
            dist.destroy_process_group(part)
    x = torch.ones(1, device=own)
    dist.all_reduce(x)
    return [*told, x.item(), parent.comm_split_count()]


def shut_down(device: Any, rank: int, world: int) -> list[int]:
    """Return how many backends of the accelerator shut down with a group and its machine."""
    from bluefog_pg import collectives

    with group_of_machines(2) as group:
        x = torch.full((4,), rank + 1.0, device=device.name)
        got = collectives.allreduce(x, group=group, is_hierarchical_local=True)
        assert got[0].item() == rank // 2 * 2 + 1.5
        before = device.shutdowns()
    return [device.shutdowns() - before]


def mixed(device: Any, rank: int, world: int, kind: str) -> list[Any]:
    """The last rank's tensors are on the CPU, and the others' on the device.

    Notices of the others are as long as one of them.
    """
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    # All ranks must be there when NCCL makes its communicator.
    dist.all_reduce(torch.ones(1, device=device.name))
    where = "cpu" if rank == world - 1 else device.name
    x = torch.full((4,), rank + 1.0, device=where)
    calls: dict[str, Callable[[], Any]] = {
        "averages": lambda: bluefog_pg.neighbor_allreduce(x),
        "gathers": lambda: bluefog_pg.neighbor_allgather(x),
        "parts": lambda: bluefog_pg.neighbor_alltoall([x] * (world - 1)),
        "pairs": lambda: bluefog_pg.pair_gossip(x, 1 - rank),
    }
    told = inrank.catch(calls[kind])
    dist.barrier()
    return [told]


def on_another(device: Any, rank: int, world: int) -> list[Any]:
    """Pass tensors of another device than the group's, and tensors of both."""
    import bluefog_pg

    own = bind(device, rank, world)
    bluefog_pg.set_topology()
    x, other = torch.ones(2, device=own), torch.ones(2, device=torch.device(device.name, 1))
    backend: Any = dist.group.WORLD._get_backend(own)
    return [
        inrank.catch(bluefog_pg.neighbor_allreduce, other),
        inrank.catch(bluefog_pg.neighbor_allgather, other),
        inrank.catch(bluefog_pg.pair_gossip, other, 1 - rank),
        inrank.catch(bluefog_pg.neighbor_allreduce, [x, other]),
        inrank.catch(backend.allgather, [[x, other]], [x]),
        bluefog_pg.neighbor_allreduce(x)[0].item(),
    ]


def told_of_none(device: Any, rank: int, world: int) -> list[Any]:
    import bluefog_pg

    x = torch.ones(2, device=device.name)
    calls = dist.all_reduce, bluefog_pg.neighbor_allreduce
    return [*(inrank.catch(call, x) for call in calls), inrank.catch(bluefog_pg.Window, x, "w")]


def on_two_devices(device: Any, rank: int, _world: int) -> list[Any]:
    """Make a window of tensors on CPU and device, and an optimizer of a model on either by rank."""
    import bluefog_pg

    both = [torch.ones(2), torch.ones(2, device=device.name)]
    net = torch.nn.Linear(3, 1).to("cpu" if rank == 0 else device.name)
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    return [
        inrank.catch(bluefog_pg.Window, both, "w"),
        inrank.catch(bluefog_pg.DistributedOptimizer, plain, net),
    ]


def placed(device: Any, rank: int, world: int) -> list[Any]:
    """Return where an example computes that is given --device."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import devices

    os.environ["LOCAL_RANK"] = str(rank)
    own = devices.own_device(device.name)
    return [str(own), torch.accelerator.current_device_index() == own.index]
