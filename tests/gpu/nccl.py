"""A rank of test_nccl runs these bodies: it calls on a group of ours what NCCL has for one."""

from __future__ import annotations

import pickle
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import bluefog_pg
from tests.support import inrank

DEVICE = torch.device("cuda", 0)


def anew(rank: int, world: int, backend: str = "bluefog") -> None:
    """Replace the default group by another one of all ranks, which is destroyed in the end."""
    if dist.is_initialized():
        dist.destroy_process_group()
    met = f"file://{inrank.directory() / 'anew'}"
    dist.init_process_group(backend, init_method=met, rank=rank, world_size=world)


def summed(rank: int, on: str | torch.device) -> float:
    x = torch.full((1000,), rank + 1.0, device=on)
    dist.all_reduce(x)
    return x[-1].item()


def averaged(rank: int, on: str | torch.device) -> float:
    return bluefog_pg.neighbor_allreduce(torch.full((1000,), rank + 1.0, device=on))[-1].item()


def named(rank: int, world: int, backend: str) -> list[float]:
    """Sum and average on the CPU and the GPU by `backend`, which names one for each device."""
    anew(rank, world, backend)
    return [call(rank, on) for call in (summed, averaged) for on in ("cpu", DEVICE)]


def aborted(rank: int, world: int) -> list[Any]:
    """Abort the group while rank 0 is alone in a collective, and meet in a new one."""
    alone = inrank.directory() / "alone"
    told = [summed(rank, DEVICE)]
    if rank == 0:
        work: Any = dist.all_reduce(torch.ones(1000, device=DEVICE), async_op=True)
        time.sleep(0.5)
        told.append(work.is_completed())
        alone.touch()
    inrank.await_file(alone.name)
    began = time.monotonic()
    c10d._abort_process_group()
    torch.cuda.synchronize()
    told.append(time.monotonic() - began < 10)
    anew(rank, world)
    return [*told, summed(rank, DEVICE), summed(rank, "cpu"), averaged(rank, DEVICE)]


def recorded(rank: int, world: int) -> list[tuple[Any, ...]]:
    """Return what NCCL's flight recorder has of a group's calls."""
    for size in (10, 20):
        dist.all_reduce(torch.ones(size, device=DEVICE))
    dist.broadcast(torch.ones(5, device=DEVICE), 1)
    x = torch.ones(3, device=DEVICE)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % world)]
    ops.append(dist.P2POp(dist.irecv, torch.empty_like(x), (rank - 1) % world))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    torch.cuda.synchronize()
    dump = torch._C._distributed_c10d._dump_nccl_trace
    keys = ("profiling_name", "input_sizes", "output_sizes", "is_p2p", "collective_seq_id")
    return [tuple(entry[key] for key in keys) for entry in pickle.loads(dump())["entries"]]
