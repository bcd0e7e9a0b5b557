"""In these bodies ranks on an accelerator disagree on a call, or one is late, dies or breaks off.

Each body returns a list: for each call its value, or what this rank came to hear.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import networkx as nx
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.on_device import begin_group


def hurry(seconds: float) -> None:
    """Shorten the group's timeout.

    Call it after the first call, in which NCCL makes its communicator.
    """
    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend._set_default_timeout(timedelta(seconds=seconds * harness.SLOW))


def pause(seconds: float) -> None:
    time.sleep(seconds * harness.SLOW)


def averaged(x: torch.Tensor, **edges: Any) -> Any:
    """Return the one value of an average, which this rank reads, or what the average raises."""
    import bluefog_pg

    return inrank.outcome(lambda: bluefog_pg.neighbor_allreduce(x, **edges)[0].item())


def towards(*ranks: int) -> dict[str, Any]:
    return {
        "self_weight": 1.0,
        "src_weights": dict.fromkeys(ranks, 1.0),
        "dst_weights": list(ranks),
    }


def heard(call: Callable[[], Any], within: float = 0.0) -> inrank.Raised | None:
    """Return what the call or its Work raises within that time, where it is wrong on some rank."""
    began = time.monotonic()
    until = began + (within or harness.WITHIN)
    work: Any = inrank.outcome(call)
    while not isinstance(work, inrank.Raised) and time.monotonic() < until:
        error = inrank.catch(work.wait)
        if error is not None:
            return error
        time.sleep(0.02)
    return work if isinstance(work, inrank.Raised) else None


def average_of(x: torch.Tensor, **edges: Any) -> Callable[[], Any]:
    import bluefog_pg

    return lambda: bluefog_pg.neighbor_allreduce(x, async_op=True, **edges)


def afterwards(device: Any, rank: int, living: list[int]) -> list[Any]:
    """Return what calls give after the error, in the old group and in a new one."""
    import bluefog_pg

    x = torch.full((4,), float(rank), device=device.name)
    near = [other for other in living if other != rank]
    edges = towards(*near)
    told = [
        inrank.catch(bluefog_pg.neighbor_allreduce, x, **edges),
        inrank.catch(dist.all_reduce, x),
        averaged(x.cpu(), **edges),
    ]
    dist.destroy_process_group()
    place = living.index(rank)
    begin_group(device.name, "met again", place, len(living))
    again = towards(*(other for other in range(len(living)) if other != place))
    return [*told, averaged(torch.full((4,), float(rank), device=device.name), **again)]


def dies(device: Any, rank: int, world: int, when: str) -> list[Any]:
    """Rank 2 dies before its second call, or while its device has not come to that call."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world, connect_style=1))
    x = torch.ones(1000, device=device.name)
    bluefog_pg.neighbor_allreduce(x).cpu()
    inrank.meet("second", world)
    if rank == 2:
        if when == "in an exchange":
            threading.Timer(0.5, os._exit, (9,)).start()
            device.fill(x, 1.0, 60_000)
            bluefog_pg.neighbor_allreduce(x, async_op=True)
            time.sleep(60.0)
        os._exit(9)
    began = time.monotonic()
    error = heard(average_of(x), 20.0)
    took = time.monotonic() - began - (0.5 if when == "in an exchange" else 0.0)
    return [took, error, *afterwards(device, rank, [0, 1, 3])]


def in_a_collective(device: Any, rank: int, _world: int) -> list[Any]:
    """Rank 0 waits in a collective on the CPU, and rank 1 waits for rank 0 on the device."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.full((4,), float(rank), device=device.name)
    averaged(x)
    hurry(2.0)
    call = dist.barrier if rank == 0 else lambda: bluefog_pg.neighbor_allgather(x)
    return [inrank.catch(call)]


def late(device: Any, rank: int, world: int) -> list[Any]:
    """Rank 1 does not come in time to the second call, in a graph that is a line."""
    import bluefog_pg

    bluefog_pg.set_topology(nx.path_graph(world).to_directed())
    x = torch.full((4,), float(rank), device=device.name)
    averaged(x)
    hurry(2.0)
    if rank == 1:
        pause(3.0)
    error = heard(average_of(x), 20.0)
    hurry(30.0)
    return [error, *afterwards(device, rank, list(range(world)))]


def prompt(device: Any, rank: int, world: int) -> list[Any]:
    """Return how long calls keep the host while a neighbor comes later, and what they give."""
    import bluefog_pg

    bluefog_pg.set_topology()
    xs = [torch.full((4,), float(rank + step), device=device.name) for step in range(3)]
    averaged(xs[0])
    inrank.meet("second", world)
    if rank == 1:
        pause(0.5)
    began = time.monotonic()
    results = [bluefog_pg.neighbor_allreduce(x) for x in xs]
    took = time.monotonic() - began
    return [took, *(each[0].item() for each in results)]


def unlike(device: Any, rank: int, world: int, how: str) -> list[Any]:
    """In the second call, the last rank does something else than the others."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    average, is_odd = bluefog_pg.neighbor_allreduce, rank == world - 1
    x = torch.full((6,), float(rank), device=device.name)
    near = [other for other in range(world) if other != rank]
    calls: dict[str, Callable[[], Any]] = {
        "gathers": lambda: bluefog_pg.neighbor_allgather(x, async_op=True),
        "gathers on the CPU": lambda: bluefog_pg.neighbor_allgather(x.cpu(), async_op=True),
        "averages on the CPU": lambda: average(x.cpu(), async_op=True),
        "averages by another name": lambda: average(x, name="odd", async_op=True),
        "averages two": lambda: average([x, x], async_op=True),
        "averages fewer elements": lambda: average(x[:3], async_op=True),
        "does not send to rank 0": lambda: average(
            x, self_weight=1.0, src_weights=dict.fromkeys(near, 1.0), dst_weights=[1], async_op=True
        ),
        "does not receive from rank 0": lambda: average(
            x, self_weight=1.0, src_weights={1: 1.0}, dst_weights=near, async_op=True
        ),
        "names nobody": lambda: average(x, **towards(), async_op=True),
        "is refused": lambda: average(x, self_weight=float("nan"), src_weights={}, dst_weights=[]),
    }
    first = averaged(x)
    hurry(10.0)
    inrank.meet("second", world)
    error = heard(calls[how] if is_odd else average_of(x))
    inrank.meet("heard", world)
    return [first, error, *afterwards(device, rank, list(range(world)))]


def in_another_order(device: Any, rank: int, world: int, what: str) -> list[Any]:
    """Rank 1 makes two named calls, or goes backward through two, in another order than rank 0."""
    import bluefog_pg

    bluefog_pg.set_topology()
    xs = [
        torch.full((3,), 100.0 * (i + 1), device=device.name, requires_grad=what == "gradients")
        for i in range(2)
    ]
    order = [1, 0] if rank == 1 else [0, 1]
    if what == "names":
        return [heard(average_of(xs[i], name="ab"[i])) for i in order]
    means = [bluefog_pg.neighbor_allreduce(x).sum() for x in xs]
    inrank.meet("backward", world)
    for i in order:
        error = inrank.catch(means[i].backward)
        if error is not None:
            return [error]
    return [heard(average_of(xs[0].detach()))]


def in_two_threads(device: Any, rank: int, world: int) -> list[Any]:
    """Make named averages in two threads, which all ranks begin in one order."""
    import bluefog_pg

    bluefog_pg.set_topology()
    values = {"a": 100.0, "b": 200.0}
    told: list[Any] = []

    def call(name: str) -> None:
        x = torch.full((3,), values[name] + rank, device=device.name)
        told.append((name, averaged(x, name=name)))

    for step in range(3):
        inrank.meet(f"step {step}", world)
        threads = [threading.Thread(target=call, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
            pause(0.1)
        for thread in threads:
            thread.join()
    return sorted(told)


def machines(device: Any, rank: int, world: int, how: str) -> list[Any]:
    """One rank differs from the others in an average over machines of two ranks each.

    Rank 3 names no other machine, or rank 0 sees one machine where the others see two, or rank 0
    averages with its neighbors.
    """
    import bluefog_pg

    x = torch.full((5,), float(rank), device=device.name)
    is_blind = how == "sees one machine" and rank == 0
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = str(world if is_blind else 2)
    graph = nx.complete_graph(1 if is_blind else world // 2, nx.DiGraph)
    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    bluefog_pg.set_machine_topology(graph)
    edges = dict[str, Any]()
    if how == "names no machine" and rank == 3:
        edges = {"self_weight": 1.0, "src_machine_weights": {}, "dst_machine_weights": {}}
    call = bluefog_pg.hierarchical_neighbor_allreduce
    if how == "averages with neighbors" and rank == 0:
        call = bluefog_pg.neighbor_allreduce
    return [heard(lambda: call(x, async_op=True, **edges), 10.0)]


def full_for_once(device: Any, rank: int, world: int) -> list[Any]:
    """Rank 0's device is full when it takes memory for its second call."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.full((3,), float(rank), device=device.name)
    averaged(x)
    if rank == 0:
        os.environ["SIMULATED_FULL"] = "1"
    error = heard(average_of(x))
    os.environ.pop("SIMULATED_FULL", None)
    inrank.meet("heard", world)
    return [error, *afterwards(device, rank, list(range(world)))]


def shared_by_mistake(device: Any, _rank: int, _world: int) -> list[Any]:
    """Two ranks have one device by mistake; c10d's calls and those of neighbors raise so."""
    import bluefog_pg

    bluefog_pg.set_topology()
    device.be_shared_by_mistake()
    x = torch.ones(4, device=device.name)
    calls = dist.all_reduce, bluefog_pg.neighbor_allreduce, bluefog_pg.neighbor_allreduce
    return [inrank.catch(call, x) for call in calls]


def begun_again(device: Any, _rank: int, _world: int) -> list[Any]:
    """Call in a new group where a group's first call has failed."""
    import bluefog_pg

    device.be_shared_by_mistake()
    bluefog_pg.set_topology()
    x = torch.ones(4, device=device.name)
    error = inrank.catch(bluefog_pg.neighbor_allreduce, x)
    device.be_apart()
    group = dist.new_group()
    bluefog_pg.set_topology(group=group)
    return [error, bluefog_pg.neighbor_allreduce(x, group=group).cpu()[0].item()]


def interrupted(device: Any, rank: int, world: int) -> list[Any]:
    """In a line, rank 0 is interrupted while a gather waits for rank 1, which comes after that."""
    import bluefog_pg

    bluefog_pg.set_topology(nx.path_graph(world).to_directed())
    x = torch.full((4,), float(rank), device=device.name)
    averaged(x)
    inrank.meet("second", world)
    if rank == 0:
        threading.Timer(0.5 * harness.SLOW, os.kill, (os.getpid(), signal.SIGINT)).start()
    if rank == 1:
        pause(1.0)
    error = inrank.catch(bluefog_pg.neighbor_allgather, x)
    inrank.meet("heard", world)
    return [error, *afterwards(device, rank, list(range(world)))]


def left(device: Any, rank: int, world: int) -> list[Any]:
    """The last rank leaves in order, and the others go on without it."""
    others = [other for other in range(world - 1) if other != rank]
    every = [other for other in range(world) if other != rank]
    told = [averaged(torch.full((4,), float(rank), device=device.name), **towards(*every))]
    if rank == world - 1:
        return told
    time.sleep(1.0)
    for step in range(3):
        x = torch.full((4,), rank + 10.0 * step, device=device.name)
        told.append(averaged(x, **towards(*others)))
    return told


def mixed(device: Any, rank: int, _world: int) -> list[Any]:
    """Average tensors on the CPU and on the device, one after the other."""
    import bluefog_pg

    bluefog_pg.set_topology()
    told = []
    for step in range(6):
        where = "cpu" if step % 3 == 1 else device.name
        told.append(averaged(torch.full((4,), 10.0 * step + rank, device=where)))
        told.append(bluefog_pg.pair_gossip(torch.full((4,), 1.0 * rank), 1 - rank)[0].item())
    return told


class Two(torch.nn.Module):
    """Two is a model with parameters near 0 and as many near 1000."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.low = torch.nn.Parameter(torch.full((100,), float(rank)))
        self.high = torch.nn.Parameter(torch.full((100,), 1000.0 + rank))

    def forward(self) -> torch.Tensor:
        return (self.low * 0 + self.high * 0).sum()


def late_for_a_step(device: Any, rank: int, world: int, communication: str) -> list[Any]:
    """In a ring, rank 0 is late for one step of an optimizer that has two buckets."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    net = Two(rank).to(device.name)
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.0),
        net,
        communication=communication,
        bucket_bytes=400,
    )

    def train() -> None:
        optimizer.zero_grad()
        net().backward()
        optimizer.step()

    train()
    inrank.meet("second", world)
    hurry(2.0)
    pause(4.0 if rank == 0 else 0.0)
    error = None
    while error is None:
        error = inrank.catch(train)
    inrank.meet("done", world)
    return [error]
