"""These bodies of ranks use windows of an accelerator's tensors."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support import inrank
from tests.support.on_device import PROMPT, SLOW_KERNEL, begin_group

N = 50_000


def ring_window(device: Any, world: int, value: float) -> Any:
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.RingGraph(world, connect_style=1))
    return bluefog_pg.Window(torch.full((N,), value, device=device.name), "w", zero_init=True)


def guarded(device: Any, rank: int, world: int) -> None:
    """Rank 0 begins calls under a mutex, after a slow kernel, and releases the mutex.

    The calls are done then, and rank 1's slot does not change while rank 1 holds the mutex.
    """
    import bluefog_pg

    bluefog_pg.set_topology()
    window = bluefog_pg.Window(torch.zeros(N, device=device.name), "w", zero_init=True)
    x = torch.empty(N, device=device.name)
    if rank == 0:
        with window.mutex():
            dist.barrier()
            device.fill(x, 1.0, SLOW_KERNEL)
            put, got = window.put(x, async_op=True), window.get(async_op=True)
        assert put.is_completed()
        assert got.is_completed()
        with window.mutex(for_self=True):
            device.fill(x, 1.0, SLOW_KERNEL)
            got = window.get(async_op=True)
        assert got.is_completed()
    else:
        dist.barrier()
        with window.mutex(for_self=True):
            before = window.versions()
            time.sleep(SLOW_KERNEL * 3e-3)
            assert before == {0: 1}
            assert window.versions() == before
    dist.barrier()
    window.free()


def opened_by_one(device: Any, rank: int, world: int, blind: int | None) -> list[list[int]]:
    """Return the device's blocks that this process has open with a window, and after it.

    The rank `blind` cannot open any.
    """
    import bluefog_pg

    def blocks() -> list[int]:
        maps = Path("/proc/self/maps").read_text().splitlines()
        return sorted({int(line.split()[4]) for line in maps if "memfd:simulated" in line})

    if rank == blind:
        os.environ["SIMULATED_NO_OPENING"] = "1"
    bluefog_pg.set_topology()
    window = bluefog_pg.Window(torch.zeros(N, device=device.name), "w", zero_init=True)
    while_there = blocks()
    window.put(torch.full((N,), rank + 1.0, device=device.name))
    dist.barrier()
    assert window.read(1 - rank)[0].item() == 2.0 - rank
    window.free()
    return [while_there, blocks()]


def messages() -> int:
    import bluefog_pg

    return int(bluefog_pg.stats()["bytes_sent"])


def ordered(device: Any, rank: int, world: int) -> None:
    """Put what slow kernels make.

    What is written to the memory after that must not be put instead.
    """
    window = ring_window(device, world, 0.0)
    (source,), bad = window.sources, []
    dist.barrier()
    for async_op in (False, True):
        x = torch.empty(N, device=device.name)
        device.fill(x, rank + 1.0, SLOW_KERNEL)
        begin = time.monotonic()
        work = window.put(x, async_op=async_op)
        if async_op and (took := time.monotonic() - begin) > PROMPT:
            bad.append(f"a put that nobody waits for kept the host for {took} s")
        device.fill(x, -1.0, 0)
        del x
        # One of these takes the memory that x had.
        again = [torch.empty(N, device=device.name) for _ in range(4)]
        if async_op:
            bad += ["completed too early"] if work.is_completed() else []
            work.wait()
        dist.barrier()
        device.fill(window.tensor, 1.0, SLOW_KERNEL)  # An update comes after that.
        got = window.update(self_weight=1.0, neighbor_weights={source: 2.0})
        seen = torch.empty(N, device=device.name)
        device.copy(seen, got, 0)
        if not seen.cpu().eq(1 + 2 * (source + 1)).all():
            bad.append(f"async_op={async_op}: {seen.cpu()[:3]}")
        del again
        dist.barrier()
    window.free()
    assert not bad, bad


def reached(device: Any, rank: int, world: int) -> list[Any]:
    """Return what a put along the ring brings, and one along an edge that no topology names.

    Both are fetched, too. The last values say whether the bytes went through the host, and what was
    logged.
    """
    with inrank.logged() as logged:
        window = ring_window(device, world, rank + 1.0)
    (source,), (destination,) = window.sources, window.destinations
    dist.barrier()
    before = messages()
    window.put(dst_weights={destination: 2.0})
    window.accumulate(dst_weights={destination: 1.0})
    dist.barrier()
    window.get(src_weights={source: 3.0}) if rank == 0 else None
    along = messages() - before
    dist.barrier()
    opposite = (rank + 2) % world
    window.put(dst_weights={opposite: 5.0})
    beside = messages() - before - along
    dist.barrier()
    got = [window.read(other)[0].item() for other in (source, opposite)]
    window.get(src_weights={opposite: 7.0})
    got.append(window.read(opposite)[0].item())
    mean = window.update(self_weight=1.0, neighbor_weights={source: 1.0, opposite: 1.0}, clone=True)
    window.free()
    return [got, mean[0].item(), str(mean.device), along > N, beside > N, logged]


def refused(device: Any, rank: int, world: int) -> dict[str, Any]:
    """Return what calls raise that a window refuses."""
    import bluefog_pg

    window = ring_window(device, world, 0.0)
    late = ring_after_free(device)
    told = {
        "a CPU's": inrank.catch(window.put, torch.zeros(N)),
        "freed": inrank.catch(late.put),
        "devices differ": inrank.catch(
            bluefog_pg.Window,
            torch.zeros(3, device=device.name if rank == 0 else "cpu"), "v",
        ),
    }  # fmt: skip
    dist.barrier()
    window.free()
    return told


def on_the_other_device(device: Any, rank: int, world: int) -> list[Any]:
    """Use a window on another device than the current one; return what is current then."""
    import gc

    import bluefog_pg

    bluefog_pg.set_topology()
    current = getattr(torch, device.name).current_device
    told = [current()]
    window = bluefog_pg.Window(torch.ones(4, device=f"{device.name}:1"), "w")
    told.append(current())
    window.put()
    dist.barrier()
    window.get()
    dist.barrier()  # This thread answers requests meanwhile.
    told.append(current())
    window.update()
    told.append(str(window.tensor.device))
    window.free()
    del window
    gc.collect()
    return [*told, current()]


def ring_after_free(device: Any) -> Any:
    import bluefog_pg

    window = bluefog_pg.Window(torch.zeros(3, device=device.name), "late")
    window.free()
    return window


def stuck(device: Any, rank: int, world: int) -> list[Any]:
    """Return what puts raise when the device does not come to them within the group's timeout."""
    import bluefog_pg

    group = dist.new_group(timeout=timedelta(seconds=2))
    x = torch.zeros(N, device=device.name)
    window = bluefog_pg.Window(x, "w", zero_init=True, group=group)
    dist.barrier()
    device.fill(x, 1.0, 6000)
    errors = [inrank.catch(window.put)]
    begun = [
        window.put(async_op=True) for _ in range(3)
    ]  # Each of them has the whole timeout for itself.
    errors += [inrank.catch(work.wait) for work in begun]
    torch.empty_like(x).copy_(x).cpu()
    window.put()
    window.free()
    return errors


def survived(device: Any, rank: int, world: int) -> list[Any]:
    """The last rank dies, and the others make a new group and a window of the same tensor.

    They still have the old Window then.
    """
    import bluefog_pg

    window = ring_window(device, world, 0.0)
    x = window.tensor
    dist.barrier()
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told: list[Any] = [inrank.catch(window.free)]
    dist.destroy_process_group()
    begin_group(device.name, "met again", rank, world - 1)
    again = bluefog_pg.Window(x, "w")
    again.put(torch.full_like(x, rank + 1.0))
    dist.barrier()
    told.append(again.update(self_weight=0.0, neighbor_weights={1 - rank: 1.0})[0].item())
    again.free()
    return told


def captured(device: Any, rank: int, world: int) -> inrank.Raised | None:
    """Return what a put raises while a graph is captured."""
    window = ring_window(device, world, 0.0)
    dist.barrier()
    with device.capture():
        error = inrank.catch(window.put)
    dist.barrier()
    window.free()
    return error


def averaged(device: Any, rank: int, world: int, communication: str, rounds: int) -> float:
    """Return how far ranks are from one another after so many steps that only average."""
    import bluefog_pg
    from bluefog_pg.optim import consensus_distance

    bluefog_pg.set_topology(bluefog_pg.topology_util.ExponentialTwoGraph(world))
    net = torch.nn.Linear(20, 3).to(device.name)
    with torch.no_grad():
        for param in net.parameters():
            param.fill_(float(rank))
    optimizer = bluefog_pg.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.0), net, communication=communication
    )
    for _ in range(rounds):
        net(torch.ones(2, 20, device=device.name)).sum().backward()
        optimizer.step()
        dist.barrier()
    optimizer.close()
    return consensus_distance(net)


def without_room(device: Any, rank: int, world: int) -> inrank.Raised | None:
    """Return what making a window raises while rank 0's device has no memory left."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.zeros(N, device=device.name)
    if rank == 0:
        os.environ["SIMULATED_NO_ROOM"] = "1"
    error = inrank.catch(bluefog_pg.Window, x, "w")
    os.environ.pop("SIMULATED_NO_ROOM", None)
    bluefog_pg.Window(x, "w").free()
    return error


def failing(device: Any, rank: int, world: int) -> list[Any]:
    """Rank 2's device fails in calls of its own, and while rank 0 fetches rank 2's tensor.

    Rank 0 is no neighbor of rank 2.
    """
    window = ring_window(device, world, rank + 1.0)
    dist.barrier()
    errors = []
    if rank == 2:
        os.environ["SIMULATED_FAILURE"] = "1"
        errors += [inrank.catch(window.put), inrank.catch(window.put(async_op=True).wait)]
    dist.barrier()
    if rank == 0:
        errors.append(inrank.catch(window.get, src_weights=[2]))
    dist.barrier()
    os.environ.pop("SIMULATED_FAILURE", None)
    dist.barrier()
    if rank == 0:
        window.get(src_weights=[2])
        errors.append(window.read(2)[0].item())
    dist.barrier()
    window.free()
    return errors


def without_kernels(device: Any, rank: int, world: int) -> inrank.Raised | None:
    import bluefog_pg

    return inrank.catch(bluefog_pg.Window, torch.ones(3, device=device.name), "w")
