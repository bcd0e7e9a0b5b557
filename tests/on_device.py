"""What runs on an accelerator, simulated or a GPU: bodies of ranks, and the tests of both."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import networkx as nx
import torch
import torch.distributed as dist

import harness
import inrank
import oracle

# A kernel that takes so long stands for what a GPU still has to do when the host goes on.
SLOW_KERNEL = 120  # milliseconds
PROMPT = 0.06 * harness.SLOW  # seconds that a call may keep the host, for its neighbours to call


class Simulated:
    """tests/simulated."""

    name = "simulated"

    def __init__(self) -> None:
        import simulated

        module = simulated.load()
        self.fill, self.copy, self.is_idle = module.fill, module.copy, module.is_idle
        self.exchange_stream = module.exchange_stream


class Cuda:
    """The first GPU, which all ranks share: to NCCL each is on a host of its own."""

    name = "cuda"
    CLOCK = 1_500_000  # at least so many cycles in a millisecond

    def __init__(self) -> None:
        os.environ["NCCL_HOSTID"] = f"rank{os.environ['RANK']}"
        os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
        os.environ |= {"NCCL_MAX_CTAS": "2", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
        torch.cuda.set_device(0)
        self._streams = [torch.cuda.Stream() for _ in range(8)]

    def fill(self, tensor: torch.Tensor, value: float, milliseconds: int) -> None:
        torch.cuda._sleep(milliseconds * self.CLOCK)
        tensor.fill_(value)

    def copy(self, to: torch.Tensor, source: torch.Tensor, milliseconds: int) -> None:
        torch.cuda._sleep(milliseconds * self.CLOCK)
        to.copy_(source)

    def is_idle(self) -> bool:
        return torch.cuda.current_stream().query()

    def exchange_stream(self, stream: Any) -> Any:
        before = torch.cuda.current_stream()
        torch.cuda.set_stream(self._streams[stream] if isinstance(stream, int) else stream)
        return before


DEVICES = {"simulated": Simulated, "cuda": Cuda}


def run(body: Callable[..., Any], device: str, world: int, *args: Any, **env: str) -> list[Any]:
    """`body(device, rank, world, *args)` on each rank, in a group of CPU and device."""
    with harness.Ranks(world, env={"GLOO_SOCKET_IFNAME": "lo", **env}) as ranks:
        ranks.start(begun, device, body.__qualname__, world, args)
        return [o.value for o in ranks.join(120)]


def begun(rank: int, _: int, kind: str, name: str, world: int, args: tuple[Any, ...]) -> Any:
    device = DEVICES[kind]()
    dist.init_process_group(
        f"cpu:bluefog,{kind}:bluefog",
        init_method=f"file://{inrank.directory() / 'met'}", rank=rank, world_size=world,
    )  # fmt: skip
    try:
        return globals()[name](device, rank, world, *args)
    finally:
        dist.destroy_process_group()


def values(dtype: torch.dtype, n: int, rank: int) -> torch.Tensor:
    return oracle.values(dtype, n, 7, rank)


def averages(device: Any, rank: int, world: int) -> list[str]:
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
    return bad


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


def ordered(device: Any, rank: int, world: int) -> list[str]:
    """A slow kernel makes the input; another stream, and the memory's next user, come too early
    where anything is missing."""
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
        again = [torch.empty(n, device=device.name) for _ in range(4)]  # where the input was
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
    return bad


def unwaited(device: Any, rank: int, world: int) -> list[Any]:
    """A Work that is dropped; a future; a wait with a limit, from a third stream."""
    import bluefog_pg

    bluefog_pg.set_topology()
    x = torch.empty(1000, device=device.name)
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
    """c10d's own calls: the backend's Work, batches of one and of both devices, barriers."""
    x = torch.empty(1000, device=device.name)
    device.fill(x, rank + 1.0, SLOW_KERNEL)
    work = dist.all_reduce(x, async_op=True)
    kinds = [type(work).__name__]
    work.wait()
    backend: Any = dist.group.WORLD._get_backend(torch.device(device.name))  # type: ignore[union-attr]
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


def fitted(name: str, order: str, rank: int) -> list[torch.Tensor]:
    import bluefog_pg

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    xs = torch.randn(10, 4, 3, generator=torch.Generator().manual_seed(rank))
    net.to(name)
    plain = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer = bluefog_pg.DistributedOptimizer(plain, net, order=order, bucket_bytes=64)
    for x in xs.to(name):
        optimizer.zero_grad()
        (net(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
    optimizer.close()
    return [param.detach().cpu() for param in net.parameters()]


def trained(device: Any, rank: int, world: int, order: str) -> float:
    """How far parameters that were trained there are from those of a CPU."""
    import bluefog_pg

    bluefog_pg.set_topology()
    there, here = fitted(device.name, order, rank), fitted("cpu", order, rank)
    return max((a - b).abs().max().item() for a, b in zip(there, here, strict=True))
