"""Calls on an accelerator on which ranks do not agree, or which they break off."""

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


def hurry(seconds: float) -> None:
    """From the first call on, in which NCCL makes its communicator."""
    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend._set_default_timeout(timedelta(seconds=seconds * harness.SLOW))


def pause(seconds: float) -> None:
    time.sleep(seconds * harness.SLOW)


def interrupt_in(seconds: float) -> None:
    threading.Timer(seconds * harness.SLOW, os.kill, (os.getpid(), signal.SIGINT)).start()


def listed(call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    return call(x).cpu().tolist()


def averaged(x: torch.Tensor, **edges: Any) -> Any:
    """What comes of a tensor, of one value, or is raised."""
    import bluefog_pg

    return inrank.outcome(lambda: bluefog_pg.neighbor_allreduce(x, **edges)[0].item())


def given_up(device: Any, rank: int, _world: int, how: str) -> list[Any]:
    """Rank 0 gives its second call up, by a timeout or by Ctrl-C, before rank 1 comes to it. What
    else they call is the same number on both ranks."""
    import bluefog_pg

    bluefog_pg.set_topology()
    told = []
    for step in range(1, 6):
        if step == 2:
            hurry(2.0)
            if rank == 1:
                pause(1.0 if how == "Ctrl-C" else 2.5)
            elif how == "Ctrl-C":
                interrupt_in(0.5)
        told.append(averaged(torch.full((4,), 10.0 * step, device=device.name)))
    return told


def at_a_late_centre(device: Any, rank: int, world: int) -> list[Any]:
    """Rank 1, whose neighbours all the others are, comes when they have given up two calls."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.StarGraph(world, center_rank=1))
    told: list[Any] = []
    for step in range(1, 6):
        if step == 2:
            hurry(2.0)
            if rank == 1:
                pause(4.6)
        told.append(averaged(torch.full((4,), 10.0 * step, device=device.name)))
    return [each if isinstance(each, inrank.Raised) else round(each, 3) for each in told]


def beside_a_late_one(device: Any, rank: int, world: int) -> list[Any]:
    """Of a ring rank 1 does not come; then the others go on without it."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    x = torch.full((4,), float(rank), device=device.name)
    bluefog_pg.neighbor_allreduce(x)
    hurry(2.0)
    told: list[Any] = []
    if rank != 1:
        call = bluefog_pg.neighbor_allreduce
        told.append(inrank.catch(lambda: told.append(call(x)[0].item())))
        near = {0: [3], 2: [3], 3: [0, 2]}[rank]
        weights = dict.fromkeys(near, 1.0)
        told.append(call(x, self_weight=1.0, src_weights=weights, dst_weights=near)[0].item())
    inrank.meet("done", world)
    return told


def reproached(device: Any, rank: int, _world: int) -> list[Any]:
    """Rank 0 hears in its first device average that rank 1 could not take what it had sent along a
    CPU's edge."""
    import bluefog_pg

    bluefog_pg.set_topology()
    xs = [torch.full((4,), 10.0 * step + rank, device=device.name) for step in range(5)]
    bluefog_pg.neighbor_allreduce(xs.pop(0))
    if rank == 0:
        bluefog_pg.neighbor_allreduce(
            torch.ones(3), self_weight=1.0, src_weights={}, dst_weights=[1]
        )
        told = list[Any]()
    else:
        pause(0.3)  # rank 0 has asked by then
        take = {"self_weight": 0.0, "src_weights": {0: 1.0}, "dst_weights": []}
        told = [averaged(torch.ones(4), **take)]
    return told + [averaged(x) for x in xs]


def machines(device: Any, rank: int, world: int, are_broken: bool) -> list[Any]:
    """Of two ranks. Rank 3 names no other machine, though rank 1 does; or ranks 0 and 2 have broken
    off a call of theirs. Then all name all."""
    import bluefog_pg

    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    bluefog_pg.set_machine_topology(nx.complete_graph(2, nx.DiGraph))
    x = torch.full((5,), float(rank), device=device.name)
    average = bluefog_pg.hierarchical_neighbor_allreduce
    if are_broken and rank % 2 == 0:
        device.be_shared_by_mistake()
        inrank.catch(bluefog_pg.pair_gossip, x, 2 - rank)
        device.be_apart()
    if not are_broken:
        average(x)
    hurry(8.0)
    inrank.meet("ready", world)
    nobody = {"self_weight": 1.0, "src_machine_weights": {}, "dst_machine_weights": {}}
    edges = nobody if rank == 3 and not are_broken else {}
    return [inrank.catch(average, x, **edges) for _ in range(2)]


def waiting_for_edges(device: Any, rank: int, world: int) -> Any:
    """Of a star: a leaf has made fewer operations of device averages than its centre, to which it
    then sends along a CPU's edge; that takes longer to take it than it may be late."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.StarGraph(world))
    for step in range(5):
        averaged(torch.full((4,), float(step), device=device.name))
    hurry(1.0)
    bluefog_pg.neighbor_allreduce(torch.ones(1))
    hurry(30.0)
    send = {"self_weight": 1.0, "src_weights": {}, "dst_weights": [0]}
    if rank == 1:
        bluefog_pg.neighbor_allreduce(torch.ones(1), **send)
    if rank == 2:
        pause(3.0)
    dist.barrier()
    take = {"self_weight": 0.0, "src_weights": {1: 1.0}, "dst_weights": []}
    return rank or averaged(torch.ones(1), **take)


def out_of_step(device: Any, rank: int, world: int) -> list[Any]:
    """Of a line: rank 0 has agreed on the second call, and breaks it off before it exchanges, while
    rank 1 waits for rank 2. Rank 1's device waits for that for ever."""
    import bluefog_pg

    bluefog_pg.set_topology(nx.path_graph(world).to_directed())
    x = torch.full((4,), float(rank), device=device.name)
    told = [inrank.catch(bluefog_pg.neighbor_allreduce, x)]
    inrank.meet("first", world)
    if rank == 0:
        interrupt_in(1.0)
    if rank == 2:
        pause(6.0)
    told += [inrank.catch(bluefog_pg.neighbor_allreduce, x) for _ in range(3)]
    inrank.meet("done", world)
    return told


def interrupted_late(device: Any, rank: int, world: int) -> list[Any]:
    """Of a line: rank 0 has agreed on the second call, and is interrupted twice while rank 1 waits
    for rank 2, which comes soon after."""
    import bluefog_pg

    bluefog_pg.set_topology(nx.path_graph(world).to_directed())
    told = []
    for step in range(4):
        if step == 1:
            inrank.meet("second", world)
            if rank == 0:
                interrupt_in(1.0)
                interrupt_in(1.1)
            if rank == 2:
                pause(1.0)
                time.sleep(0.3)
        told.append(averaged(torch.full((4,), 3.0 * step, device=device.name)))
    return told


def beside_a_waiting_thread(device: Any, rank: int, world: int) -> list[Any]:
    """A thread of rank 0 calls to rank 1, which does not come; behind it one to rank 2, which comes
    when the first one has given up."""
    x = torch.full((4,), float(rank), device=device.name)
    averaged(x, **towards(*{0: [1, 2], 1: [0], 2: [0]}[rank]))
    hurry(2.0)
    told: list[Any] = []
    if rank == 0:
        late = threading.Thread(target=lambda: told.append(averaged(x, **towards(1))))
        late.start()
        pause(0.2)
        told.append(averaged(x, **towards(2)))
        late.join()
    if rank == 2:
        averaged(x, **towards())
        pause(3.0)
        told.append(averaged(x, **towards(0)))
    inrank.meet("done", world)
    return told


def beside_each_other(device: Any, rank: int, _world: int) -> list[Any]:
    """Rank 0's second call names rank 1, whose second call names nobody."""
    x = torch.full((4,), float(rank), device=device.name)
    averaged(x, **towards(1 - rank))
    hurry(2.0)
    told = [averaged(x, **towards(*[1] * (rank == 0)))]
    told += [averaged(x + 10.0 * step, **towards(1 - rank)) for step in range(1, 4)]
    return told


def towards(*ranks: int) -> dict[str, Any]:
    return {
        "self_weight": 1.0,
        "src_weights": dict.fromkeys(ranks, 1.0),
        "dst_weights": list(ranks),
    }


def left_early(device: Any, rank: int, world: int) -> list[Any]:
    """The last rank gives its second call up while rank 1, or 0 of two, has not come."""
    import bluefog_pg

    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    bluefog_pg.set_machine_topology(nx.complete_graph(world // 2, nx.DiGraph))
    average = bluefog_pg.hierarchical_neighbor_allreduce
    told = []
    for step in range(4):
        x = torch.full((5,), rank + 10.0 * step, device=device.name)
        if step == 1:
            inrank.meet("second", world)
            if rank == world - 1:
                interrupt_in(0.5)
            if rank == (1 if world > 2 else 0):
                pause(1.5)
        told.append(inrank.outcome(listed, average, x))
    return told


def beside_machines(device: Any, rank: int, world: int) -> list[Any]:
    """In the second call rank 0 averages with its neighbours, the others among machines."""
    import bluefog_pg

    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    bluefog_pg.set_machine_topology(nx.complete_graph(world // 2, nx.DiGraph))
    told = []
    for step in range(3):
        is_odd = (step, rank) == (1, 0)
        x = torch.full((4,), 12.0 * step + rank, device=device.name)
        average = (
            bluefog_pg.neighbor_allreduce if is_odd else bluefog_pg.hierarchical_neighbor_allreduce
        )
        told.append(inrank.outcome(listed, average, x))
    return told


def of_unlike_machines(device: Any, rank: int, world: int) -> inrank.Raised | None:
    """Rank 0 sees one machine where the others see two."""
    import bluefog_pg

    os.environ["BLUEFOG_NODES_PER_MACHINE"] = str(world if rank == 0 else 2)
    bluefog_pg.set_machine_topology(nx.empty_graph(1 if rank == 0 else world // 2, nx.DiGraph))
    x = torch.ones(8, device=device.name)
    return inrank.catch(bluefog_pg.hierarchical_neighbor_allreduce, x)


def in_two_threads(device: Any, rank: int, world: int) -> list[Any]:
    """Named averages, one in each thread, which rank 1 begins in the other order in odd steps."""
    import bluefog_pg

    bluefog_pg.set_topology()
    xs = {
        name: torch.full((3,), value, device=device.name)
        for name, value in (("a", 100.0), ("b", 200.0))
    }
    bluefog_pg.neighbor_allreduce(xs["a"])
    told: list[Any] = []
    for step in range(6):
        inrank.meet(f"step {step}", world)
        threads = [
            threading.Thread(target=lambda n=n: told.append((step, n, averaged(xs[n], name=n))))  # noqa: B023
            for n in ("ba" if rank == 1 and step % 2 else "ab")
        ]
        for thread in threads:
            thread.start()
            pause(0.1)
        for thread in threads:
            thread.join()
    return told


def unlike(device: Any, rank: int, world: int, how: str) -> list[Any]:
    """In the second call the last rank does something else, in the third ranks average unequal
    numbers of elements."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    average = bluefog_pg.neighbor_allreduce
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "gathers": bluefog_pg.neighbor_allgather,
        "gathers on the CPU": lambda x: bluefog_pg.neighbor_allgather(x.cpu()),
        "averages on the CPU": lambda x: average(x.cpu()),
        "averages by another name": lambda x: average(x, name="odd"),
        "averages two": lambda x: average([x, x])[0],
    }
    told = []
    for step in range(6):
        if step == 1:
            hurry(2.0)
        is_odd = step == 1 and rank == world - 1
        n = 3 * (rank + 1) if step == 2 else 6
        x = torch.full((n,), 10.0 * step + rank, device=device.name)
        told.append(inrank.outcome(listed, calls[how] if is_odd else average, x))
    return told


def beside_the_cpu(device: Any, rank: int, _world: int, how: str) -> list[Any]:
    """In the first call one rank's tensor is on the CPU and the other one's is not; the later ones
    average on the CPU."""
    import bluefog_pg

    bluefog_pg.set_topology()
    hurry(2.0)
    there = torch.full((4,), 1.0, device=device.name)
    along = {
        "self_weight": 1.0,
        "src_weights": {0: 1.0} if rank else {},
        "dst_weights": [] if rank else [1],
    }
    first = {
        "one sends on the CPU": lambda: averaged(there if rank else there.cpu(), **along),
        "one receives on the CPU": lambda: averaged(there.cpu() if rank else there, **along),
    }
    told = [first[how]()]
    told += [averaged(torch.full((4,), 10.0 * step + rank)) for step in range(1, 5)]
    inrank.meet("done", 2)
    return told


class Two(torch.nn.Module):
    """Parameters near 0, and as many near 1000."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.low = torch.nn.Parameter(torch.full((100,), float(rank)))
        self.high = torch.nn.Parameter(torch.full((100,), 1000.0 + rank))

    def forward(self) -> torch.Tensor:
        return (self.low * 0 + self.high * 0).sum()


def late_for_a_step(device: Any, rank: int, world: int, communication: str) -> list[Any]:
    """Of a ring rank 0 is late for one step of an optimizer that has two buckets."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world))
    net = Two(rank).to(device.name)
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.0),
        net,
        communication=communication,
        bucket_bytes=400,
    )
    told = []
    for step in range(6):
        if step == 1:
            inrank.meet("second", world)
            hurry(2.0)
            pause(3.0 if rank == 0 else 0.0)

        def train() -> None:
            optimizer.zero_grad()
            net().backward()
            optimizer.step()

        error = inrank.catch(train)
        told.append((error, net.low.max().item(), net.high.min().item()))
    inrank.meet("done", world)
    optimizer.close()
    return told


def late_after_pairs(device: Any, rank: int, world: int) -> list[Any]:
    """Ranks 0 and 1 have made a call more when rank 2 is late for one of all."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    told = list[Any]()
    for step in range(6):
        x = torch.full((4,), 10.0 * step + rank, device=device.name)
        if step == 2:
            hurry(2.0)
            pause(3.0 if rank == 2 else 0.0)
        told.append(averaged(x))
        if step == 0 and rank < 2:
            bluefog_pg.pair_gossip(x, 1 - rank)
    return told


def full_for_once(device: Any, rank: int, _world: int) -> list[Any]:
    """Rank 0's device is full at one allocation after the other."""
    import bluefog_pg

    bluefog_pg.set_topology()
    calls: list[Callable[[torch.Tensor], Any]] = [
        lambda x: bluefog_pg.neighbor_allreduce([x, x]),
        lambda x: bluefog_pg.neighbor_alltoall([x.expand(4, 3).t()]),
    ]
    told = []
    for call, most in zip(calls, (5, 1), strict=True):
        call(torch.zeros(3, device=device.name))
        for number in range(1, most + 1):
            x = torch.full((3,), 10.0 * number + rank, device=device.name)
            if rank == 0:
                os.environ["SIMULATED_FULL"] = str(number)
            outcome = inrank.outcome(last, call, x)
            os.environ.pop("SIMULATED_FULL", None)
            told.append((outcome, last(call, x)))
    return told


def last(call: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    value: float = call(x)[-1].cpu().flatten()[0].item()
    return value


def begun_again(device: Any, _rank: int, _world: int) -> list[Any]:
    """Where a group's first call has failed, in a new one."""
    import bluefog_pg

    device.be_shared_by_mistake()
    bluefog_pg.set_topology()
    x = torch.ones(4, device=device.name)
    error = inrank.catch(bluefog_pg.neighbor_allreduce, x)
    device.be_apart()
    group = dist.new_group()
    bluefog_pg.set_topology(group=group)
    return [error, bluefog_pg.neighbor_allreduce(x, group=group).cpu()[0].item()]


def bereft(device: Any, rank: int, world: int) -> inrank.Raised | None:
    """Rank 2 dies before it calls."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world, connect_style=1))
    x = torch.ones(1000, device=device.name)
    bluefog_pg.neighbor_allreduce(x).cpu()
    if rank == 2:
        os._exit(9)
    return inrank.catch(bluefog_pg.neighbor_allreduce, x)


def shared_by_mistake(device: Any, _rank: int, _world: int) -> list[Any]:
    """By c10d, and by neighbours, who then do not know what the others have exchanged."""
    import bluefog_pg

    bluefog_pg.set_topology()
    device.be_shared_by_mistake()
    x = torch.ones(4, device=device.name)
    calls = dist.all_reduce, bluefog_pg.neighbor_allreduce, bluefog_pg.neighbor_allreduce
    return [inrank.catch(call, x) for call in calls]
