"""What runs on an accelerator, simulated or a GPU: bodies of ranks, and the tests of both."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
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

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        os.environ["SIMULATED_CAPTURE"] = "1"
        yield
        del os.environ["SIMULATED_CAPTURE"]

    def be_shared_by_mistake(self) -> None:
        os.environ["SIMULATED_DUPLICATE"] = "1"


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

    def capture(self) -> contextlib.AbstractContextManager[None]:
        return torch.cuda.graph(torch.cuda.CUDAGraph())

    def be_shared_by_mistake(self) -> None:
        del os.environ["NCCL_HOSTID"]


DEVICES = {"simulated": Simulated, "cuda": Cuda}


def run(body: Callable[..., Any], device: str, world: int, *args: Any, **env: str) -> list[Any]:
    """`body(device, rank, world, *args)` on each rank, in a group of CPU and device."""
    with harness.Ranks(world, env={"GLOO_SOCKET_IFNAME": "lo", **env}) as ranks:
        ranks.start(begun, device, f"{body.__module__}:{body.__qualname__}", world, args)
        return [o.value for o in ranks.join(120)]


def begun(rank: int, _: int, kind: str, name: str, world: int, args: tuple[Any, ...]) -> Any:
    device = DEVICES[kind]()
    dist.init_process_group(
        f"cpu:bluefog,{kind}:bluefog",
        init_method=f"file://{inrank.directory() / 'met'}", rank=rank, world_size=world,
    )  # fmt: skip
    try:
        return inrank.resolve(name)(device, rank, world, *args)
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
    # What is done for the first time takes longer, and a kernel that is loaded waits for others.
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


# Whatever a program has made the default.
PLAIN: dict[str, Any] = {"device": "cpu", "dtype": torch.float32}


def small_net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 5, **PLAIN), torch.nn.Tanh(), torch.nn.Linear(5, 1, **PLAIN)
    )


def fitted(name: str, form: Callable[..., Any], rank: int) -> list[torch.Tensor]:
    """Parameters trained on that device; `form(net)`: how a step is made of a loss."""
    net = small_net().to(name)
    own = torch.Generator().manual_seed(rank)
    xs = torch.randn(10, 4, 3, generator=own, **PLAIN)
    step, close = form(net)
    for x in xs.to(name):
        step(x)
    close()
    return [param.detach().cpu() for param in net.parameters()]


def loss_of(net: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return (net(x) - x.sum(1, keepdim=True)).pow(2).mean()


def wrapped(options: Callable[[], dict[str, Any]], momentum: float = 0.0) -> Callable[..., Any]:
    """A DistributedOptimizer with these options, new ones each time."""

    def form(net: torch.nn.Module) -> tuple[Callable[[torch.Tensor], None], Callable[[], None]]:
        import bluefog_pg

        plain = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
        optimizer = bluefog_pg.DistributedOptimizer(plain, net, bucket_bytes=64, **options())

        def step(x: torch.Tensor) -> None:
            optimizer.zero_grad()
            loss_of(net, x).backward()
            optimizer.step()

        return step, optimizer.close

    return form


def by_itself(net: torch.nn.Module) -> tuple[Callable[[torch.Tensor], None], Callable[[], None]]:
    """DecentralizedDataParallel."""
    import bluefog_pg

    model = bluefog_pg.DecentralizedDataParallel(
        net,
        lambda named: torch.optim.Adam([p for _, p in named], lr=0.1),
        grad_clip_norm=1.0,
        bucket_size_in_mb=64 / 2**20,
    )

    def close() -> None:
        model.global_avg()
        model.close()

    return lambda x: loss_of(model, x).backward(), close


def hooked(net: torch.nn.Module) -> tuple[Callable[[torch.Tensor], None], Callable[[], None]]:
    """Torch's DistributedDataParallel."""
    from bluefog_pg.ddp_hooks import NeighborAverager, NeighborState, neighbor_average_hook

    model = torch.nn.parallel.DistributedDataParallel(net)
    model.register_comm_hook(NeighborState(topology="one-peer-exp2"), neighbor_average_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    averager = NeighborAverager(period=3)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()
        averager.average_parameters(net.parameters())

    return step, lambda: None


def forms(kind: str) -> dict[str, Callable[..., Any]]:
    """Ways to train, but by windows."""
    from bluefog_pg import optim

    def outer(anchors: list[Any]) -> torch.optim.Optimizer:
        return torch.optim.SGD(anchors, lr=0.7, momentum=0.5, nesterov=True)

    of: dict[str, dict[str, Any]] = {
        "orders": {
            "awc": wrapped(lambda: {"order": "awc"}, momentum=0.9),
            "atc": wrapped(lambda: {"order": "atc"}, momentum=0.9),
            "in backward": wrapped(lambda: {"order": optim.AdaptThenCombine(in_backward=True)}),
            "exact": wrapped(lambda: {"order": optim.ExactDiffusion(), "topology": "ring"}),
            "tracking": wrapped(lambda: {"order": optim.GradientTracking(), "topology": "ring"}),
            "PushDiging": wrapped(lambda: {"order": optim.PushDiging()}),
            "quasi-global": wrapped(lambda: {"order": optim.QuasiGlobalMomentum(), "every": 2}),
            "DecentLaM": wrapped(lambda: {"order": optim.DecentLaM(), "topology": "ring"}, 0.9),
            "local": wrapped(lambda: {"order": optim.LocalSteps(outer), "every": 3}),
        },
        "communications": {
            name: wrapped(lambda name=name: {"communication": name})
            for name in (
                "hierarchical_neighbor_allreduce", "allreduce", "gradient_allreduce", "push_sum",
                "empty",
            )
        },
        "compressions": {
            name: wrapped(lambda make=make: {"compression": make(), "topology": "one-peer-exp2"})
            for name, make in {
                "fp16": lambda: "fp16", "bf16": lambda: "bf16", "int8": lambda: optim.Int8(4),
                "top-k": lambda: optim.TopK(0.3), "random-k": lambda: optim.RandomK(0.3),
            }.items()
        },
        "models": {"DecentralizedDataParallel": by_itself, "DistributedDataParallel": hooked},
    }  # fmt: skip
    return of[kind]


def trained(device: Any, rank: int, world: int, kind: str) -> dict[str, float]:
    """How far parameters that were trained there are from those of a CPU."""
    import bluefog_pg

    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    bluefog_pg.set_topology()
    bluefog_pg.set_machine_topology(nx.complete_graph(world // 2, nx.DiGraph))
    return {
        name: apart(fitted(device.name, form, rank), fitted("cpu", form, rank))
        for name, form in forms(kind).items()
    }


def apart(there: list[torch.Tensor], here: list[torch.Tensor]) -> float:
    return max((a - b).abs().max().item() for a, b in zip(there, here, strict=True))


def called(name: str, rank: int, world: int) -> list[torch.Tensor]:
    """What calls give for tensors on that device."""
    import bluefog_pg
    from bluefog_pg import collectives

    group = dist.new_group()
    ring = bluefog_pg.topology_util.RingGraph(world)
    bluefog_pg.set_topology(ring, group=group)
    bluefog_pg.set_machine_topology(nx.complete_graph(world // 2, nx.DiGraph), group=group)
    x = torch.arange(6.0, **PLAIN).view(3, 2).add_(rank).to(name).requires_grad_()
    left, right = (rank - 1) % world, (rank + 1) % world
    edges: Any = {"self_weight": 0.5, "src_weights": {left: 0.5}, "dst_weights": [right]}
    directed: Any = {"src_ranks": [left], "dst_ranks": [right]}
    checked: Any = {"enable_topo_check": True, "group": group}
    machine = rank // 2 ^ 1
    outs = [
        bluefog_pg.neighbor_allreduce(x, **edges, **checked),
        bluefog_pg.neighbor_allgather(x[: rank + 1], **directed, **checked),
        *bluefog_pg.neighbor_alltoall([x[0]], **directed, **checked),
        bluefog_pg.pair_gossip(x, rank ^ 1, group=group),
        bluefog_pg.hierarchical_neighbor_allreduce(
            x, self_weight=0.5, src_machine_weights={machine: 0.5}, dst_machine_weights=[machine],
            **checked,
        ),
        collectives.allreduce(x, group=group),
        collectives.allreduce(x, group=group, is_hierarchical_local=True),
        collectives.broadcast(x, 1, group),
        collectives.allgather(x[: rank % 3], group),
    ]  # fmt: skip
    sum(out.square().sum() for out in outs).backward()
    assert x.grad is not None
    works = [collectives.allgather(x[: rank % 3], group, async_op=True)]
    works += [collectives.allreduce(x, group=group, async_op=True)]
    for work in works:
        work.wait()
    outs += [x.grad, *(work.result()[0] for work in works)]
    dist.destroy_process_group(group)
    return [out.detach().cpu() for out in outs]


def kept(name: str, rank: int, world: int) -> list[torch.Tensor]:
    """States that are sent around, saved and loaded, and what is told of them."""
    import bluefog_pg
    from bluefog_pg import optim

    net = small_net().to(name)
    with torch.no_grad():
        for param in net.parameters():
            param.mul_(rank + 1)
    distances = [optim.consensus_distance(net)]
    bluefog_pg.allreduce_parameters(net.state_dict())
    sampler = optim.LocalStepRandomBatchSampler(range(7), 3, base_seed=1, rank=rank)
    adam = optim.AccumAdam(net.parameters(), lr=0.1 * (rank + 1))
    optimizer = bluefog_pg.DistributedOptimizer(
        adam, net, "push_sum", bucket_bytes=64, topology="one-peer-exp2"
    )
    recorder = optim.Recorder(optimizer, None)
    for batch in [*sampler, *sampler]:
        x = torch.tensor([[rank, *batch[:2]]], **PLAIN).to(name)
        optimizer.zero_grad()
        loss = loss_of(net, x)
        loss.backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    told = recorder.write(1, loss=loss, rate=0.1, distance=True)
    bluefog_pg.broadcast_optimizer_state(optimizer, 1)
    assert optimizer.param_groups[0]["lr"] == 0.2
    optimizer.close()
    bluefog_pg.broadcast_parameters(net.state_dict(), 1)
    distances += [told[name] for name in ("consensus_distance", "loss", "rate")]
    distances += [optim.consensus_distance(net)]
    moments = [state["exp_avg"] for state in optimizer.state.values()]
    assert all(moment.device == x.device for moment in moments)
    return [
        t.detach().cpu() for t in (*net.parameters(), *moments, torch.tensor(distances, **PLAIN))
    ]


def windowed(rank: int, world: int) -> list[torch.Tensor]:
    """Windows of CPU tensors; and optimizers by windows, of which no two runs are alike."""
    import bluefog_pg
    from bluefog_pg import optim

    bluefog_pg.turn_on_win_ops_with_associated_p()
    parts = [torch.full((3,), float(rank), **PLAIN), torch.ones(2, 2, **PLAIN)]
    window = bluefog_pg.Window(parts, "parts", zero_init=True)
    window.accumulate(self_weight=0.5, dst_weights=dict.fromkeys(window.destinations, 0.25))
    window.fence()
    window.update_then_collect()
    found = [part.clone() for part in parts] + [torch.tensor(window.associated_p, **PLAIN)]
    window.free()
    bluefog_pg.turn_off_win_ops_with_associated_p()
    for options in ({"communication": "win_put"}, {"order": optim.AsynchronousPairs()}):
        fitted("cpu", wrapped(lambda options=options: options), rank)
    return found


def everywhere(device: Any, rank: int, world: int) -> list[float]:
    """How far what calls give there is from what they give on a CPU."""
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    return [apart(run(device.name, rank, world), run("cpu", rank, world)) for run in (called, kept)]


def compressed(device: Any, _rank: int, _world: int) -> tuple[str, list[str]]:
    """By what messages are formed, and which are not what they are on a CPU."""
    from bluefog_pg import optim
    from bluefog_pg.optim.compression import NAMED
    from bluefog_pg.optim.messages import forms_of

    makes = {**NAMED, "int8 of 3": lambda: optim.Int8(3), "top-k": lambda: optim.TopK(0.1)}
    by = type(forms_of(torch.empty(1, device=device.name))).__name__
    bad = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for n in (1, 7, 200):  # of distinct magnitudes: top-k's are one set
            order = torch.randperm(n, generator=torch.Generator().manual_seed(n))
            x = ((order + 1) * (order % 2 * 2 - 1) / 4).to(dtype)
            x[-1] = torch.finfo(torch.float16).max
            # By formulas a GPU's quotients are others by a bit, and halves are rounded to another.
            limit = 0.0 if by == "MessageKernels" else x.abs().max().item() / 100
            for name, make in makes.items():
                one = make()
                want = one.decompress(one.compress(x), x)
                there = x.to(device.name)
                got = one.decompress(one.compress(there), there).cpu()
                if got.dtype != dtype or (got.double() - want.double()).abs().max() > limit:
                    bad.append(f"{name}, {n} {dtype}")
    return by, bad


def mixed(device: Any, rank: int, world: int) -> list[Any]:
    """The last rank's tensors are on the CPU: notices of the others are as long as some of them."""
    import bluefog_pg

    bluefog_pg.set_topology(bluefog_pg.topology_util.FullyConnectedGraph(world))
    dist.all_reduce(torch.ones(1, device=device.name))  # NCCL's communicator needs all ranks
    where = "cpu" if rank == world - 1 else device.name
    told = []
    for n in (1, 2, 3, 1000):
        x = torch.full((n,), rank + 1.0, device=where)
        told += [
            inrank.catch(bluefog_pg.neighbor_allreduce, x),
            inrank.catch(bluefog_pg.neighbor_allgather, x),
            inrank.catch(bluefog_pg.neighbor_alltoall, [x] * (world - 1)),
        ]
        if world == 2:
            told.append(inrank.catch(bluefog_pg.pair_gossip, x, 1 - rank))
    dist.barrier()
    return told


def on_two_devices(device: Any, rank: int, _world: int) -> list[Any]:
    """A window of tensors here and there; a model that is here on one rank and there on another."""
    import bluefog_pg

    both = [torch.ones(2), torch.ones(2, device=device.name)]
    net = small_net().to("cpu" if rank == 0 else device.name)
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    return [
        inrank.catch(bluefog_pg.Window, both, "w"),
        inrank.catch(bluefog_pg.DistributedOptimizer, plain, net),
    ]


def shared_by_mistake(device: Any, _rank: int, _world: int) -> list[Any]:
    """By c10d, and by neighbours."""
    import bluefog_pg

    bluefog_pg.set_topology()
    device.be_shared_by_mistake()
    x = torch.ones(4, device=device.name)
    return [inrank.catch(dist.all_reduce, x), inrank.catch(bluefog_pg.neighbor_allreduce, x)]


def by_default(device: Any, rank: int, world: int, default: str) -> dict[str, float]:
    """How far what calls give for CPU tensors is from that, where a program has set defaults."""

    def everything() -> dict[str, list[torch.Tensor]]:
        bluefog_pg.set_topology()
        found = {"called": called("cpu", rank, world), "kept": kept("cpu", rank, world)}
        found["windows"] = windowed(rank, world)
        for kind in ("orders", "communications", "compressions", "models"):
            for name, form in forms(kind).items():
                found[name] = fitted("cpu", form, rank)
        return found

    import bluefog_pg

    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    bluefog_pg.set_machine_topology(nx.complete_graph(world // 2, nx.DiGraph))
    want = everything()
    if default == "device":
        torch.set_default_device(device.name)
    else:
        torch.set_default_dtype(getattr(torch, default))
    got = everything()
    torch.set_default_device(None)
    return {name: apart(got[name], want[name]) for name in want}


def placed(device: Any, rank: int, world: int) -> list[Any]:
    """Where an example computes that is given --device."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import devices

    os.environ["LOCAL_RANK"] = str(rank)
    own = devices.own_device(device.name)
    return [str(own), torch.accelerator.current_device_index() == own.index]
