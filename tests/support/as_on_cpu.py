"""These bodies compare what an accelerator gives with what a CPU gives for the same calls."""

from __future__ import annotations

import os
from typing import Any

import networkx as nx
import torch
import torch.distributed as dist

from tests.support.trainings import PLAIN, fitted, forms, loss_of, small_net, wrapped


def trained(device: Any, rank: int, world: int, kind: str) -> dict[str, float]:
    """Return, by form, how far parameters trained on the device are from those trained on a CPU."""
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
    """Return the results, moved to the CPU, of calls for tensors on the device `name`."""
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
    """Return parameters, states and metrics after states were sent around, saved and loaded."""
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
    """Return what windows of CPU tensors hold, and run optimizers that use windows.

    No two runs of those optimizers are alike, so their parameters are not compared.
    """
    import bluefog_pg
    from bluefog_pg import optim

    bluefog_pg.torch.turn_on_win_ops_with_associated_p()
    parts = [torch.full((3,), float(rank), **PLAIN), torch.ones(2, 2, **PLAIN)]
    window = bluefog_pg.Window(parts, "parts", zero_init=True)
    window.accumulate(self_weight=0.5, dst_weights=dict.fromkeys(window.destinations, 0.25))
    window.fence()
    window.update_then_collect()
    found = [part.clone() for part in parts] + [torch.tensor(window.associated_p, **PLAIN)]
    window.free()
    bluefog_pg.torch.turn_off_win_ops_with_associated_p()
    for options in ({"communication": "win_put"}, {"order": optim.AsynchronousPairs()}):
        fitted("cpu", wrapped(lambda options=options: options), rank)
    return found


def everywhere(device: Any, rank: int, world: int) -> list[float]:
    """Return how far the results of calls on the device are from those on a CPU."""
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    return [apart(run(device.name, rank, world), run("cpu", rank, world)) for run in (called, kept)]


def compressed(device: Any, _rank: int, _world: int, expected: str) -> None:
    """Assert that `expected` forms the messages, and that they are the same as on a CPU."""
    from bluefog_pg import optim
    from bluefog_pg.optim.compression import NAMED
    from bluefog_pg.optim.messages import forms_of

    makes = {**NAMED, "int8 of 3": lambda: optim.Int8(3), "top-k": lambda: optim.TopK(0.1)}
    by = type(forms_of(torch.empty(1, device=device.name))).__name__
    assert by == expected, by
    bad = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for n in (1, 7, 200):  # The magnitudes are distinct, so top-k has one answer.
            order = torch.randperm(n, generator=torch.Generator().manual_seed(n))
            x = ((order + 1) * (order % 2 * 2 - 1) / 4).to(dtype)
            x[-1] = torch.finfo(torch.float16).max
            # Without kernels, a GPU's quotients may differ by a bit, and then round to another
            # number.
            limit = 0.0 if by == "MessageKernels" else x.abs().max().item() / 100
            for name, make in makes.items():
                one = make()
                want = one.decompress(one.compress(x), x)
                there = x.to(device.name)
                got = one.decompress(one.compress(there), there).cpu()
                if got.dtype != dtype or (got.double() - want.double()).abs().max() > limit:
                    bad.append(f"{name}, {n} {dtype}")
    assert not bad, bad


def by_default(device: Any, rank: int, world: int) -> dict[str, dict[str, float]]:
    """Return, for each default of a program, how far it moves the results for CPU tensors."""

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
    told = {}
    for default in ("device", "float64", "bfloat16"):
        if default == "device":
            torch.set_default_device(device.name)
        else:
            torch.set_default_dtype(getattr(torch, default))
        got = everything()
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
        told[default] = {name: apart(got[name], want[name]) for name in want}
    return told
