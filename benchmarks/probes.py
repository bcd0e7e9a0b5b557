"""This program is one rank, which measures starting, idling, and training steps for collectives.py.

start   seconds of init_process_group and of the first all_reduce after it, then CPU when idle
train   seconds of a training step, bluefog and gloo taking turns: DDP of examples/train_digits.py,
        DDP and FSDP2 of a net of 25 M parameters
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import launch
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

Step = Callable[[], None]
LIMIT = timedelta(seconds=60)


def start(me: launch.Rank) -> dict[str, float]:
    me.together("start")
    begun = time.perf_counter()
    dist.init_process_group(
        me.args["backend"],
        store=dist.PrefixStore("job", me.store),
        rank=me.rank,
        world_size=me.n,
        timeout=LIMIT,
    )
    ready = time.perf_counter()
    dist.all_reduce(torch.ones(1))
    first = time.perf_counter()
    found = {"init_s": me.slowest("init", ready - begun)}
    found["first_all_reduce_s"] = me.slowest("first", first - ready)
    if me.args["idle"]:
        me.together("idle")
        before = time.process_time()  # the CPU time of all threads of this process
        time.sleep(me.args["idle"])
        percent = 100 * (time.process_time() - before) / me.args["idle"]
        found["idle_percent"] = me.slowest("percent", percent)
    me.together("end")
    return found


def digits_ddp(me: launch.Rank, group: dist.ProcessGroup) -> Step:
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import digits

    images, labels, *_ = digits.load_data(me.rank, me.n, seed=0)
    net = DistributedDataParallel(digits.make_net(), process_group=group)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    batch = digits.BATCH

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(images[:batch]), labels[:batch]).backward()
        optimizer.step()

    return step


def large_net() -> torch.nn.Sequential:
    """Return a net of 25 M parameters."""
    wide = torch.nn.Linear(4096, 4096)
    ends = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)
    return torch.nn.Sequential(ends[0], torch.nn.ReLU(), wide, torch.nn.ReLU(), ends[1])


def large_step(net: torch.nn.Module) -> Step:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.ones(4, 1024)

    def step() -> None:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


def large_ddp(_me: launch.Rank, group: dist.ProcessGroup) -> Step:
    return large_step(DistributedDataParallel(large_net(), process_group=group))


def large_fsdp2(_me: launch.Rank, group: dist.ProcessGroup) -> Step:
    mesh = DeviceMesh.from_group(group, "cpu")
    net = large_net()
    for layer in net:
        fully_shard(layer, mesh=mesh)
    return large_step(fully_shard(net, mesh=mesh))


class Training(NamedTuple):
    make: Callable[[launch.Rank, dist.ProcessGroup], Step]
    rounds: int
    steps: int  # steps of each round


TRAININGS = {
    "digits_ddp": Training(digits_ddp, 15, 20),
    "large_ddp": Training(large_ddp, 5, 2),
    "large_fsdp2": Training(large_fsdp2, 5, 2),
}


def train(me: launch.Rank) -> dict[str, float]:
    dist.init_process_group(
        me.args["backends"][0], store=me.store, rank=me.rank, world_size=me.n, timeout=LIMIT
    )
    make = TRAININGS[me.args["training"]].make
    names = me.args["backends"]
    steps = {name: make(me, dist.new_group(backend=name, timeout=LIMIT)) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(me.args["rounds"] + 1):
        for name, step in steps.items():
            dist.barrier()
            begun = time.perf_counter()
            for _ in range(me.args["steps"]):
                step()
            times[name].append((time.perf_counter() - begun) / me.args["steps"])
    # The first round warms up.
    return {name: me.slowest(name, statistics.median(each[1:])) for name, each in times.items()}


def main() -> None:
    me = launch.join()
    found: Any = {"start": start, "train": train}[me.args["probe"]](me)
    me.give_back(found)
    me.together("found")
    dist.destroy_process_group()


def run_all(n: int, backends: list[str], deadline: float, quick: bool) -> dict[str, Any]:
    """Run all probes with n ranks, and return what they found.

    Every start has fresh processes, and the backends take turns.
    """
    backends = [name for name in ("bluefog", "gloo") if name in backends]
    starts: dict[str, list[Any]] = {name: [] for name in backends}
    for turn in range(1 if quick else 5):
        for name in backends:
            idle = 0 if turn else 1 if quick else 3
            args: dict[str, Any] = {"probe": "start", "backend": name, "idle": idle}
            starts[name].append(launch.run_ranks("probes.py", n, args, deadline))
    found: dict[str, Any] = {"starts": starts}
    if not backends:
        return found
    found["step_s"] = {}
    for name, training in TRAININGS.items():
        args = {"probe": "train", "training": name, "backends": backends}
        args |= {"rounds": 3 if quick else training.rounds, "steps": training.steps}
        found["step_s"][name] = launch.run_ranks("probes.py", n, args, deadline)
    for name, runs in starts.items():
        inits = statistics.median(run["init_s"] for run in runs)
        firsts = statistics.median(run["first_all_reduce_s"] for run in runs)
        print(
            f"{name}, {n} ranks: init_process_group {inits:.3f} s, first all_reduce "
            f"{firsts * 1e3:.1f} ms, idle {runs[0]['idle_percent']:.2f} % of a core, "
            "steps of "
            + ", ".join(f"{t} {step[name] * 1e3:.1f} ms" for t, step in found["step_s"].items()),
            flush=True,
        )
    if len(backends) == 2:
        init = {b: statistics.median(run["init_s"] for run in starts[b]) for b in backends}
        found["init_beyond_gloo_s"] = init["bluefog"] - init["gloo"]
        found["step_ratio"] = {
            training: step["bluefog"] / step["gloo"] for training, step in found["step_s"].items()
        }
    if "bluefog" in backends:
        found["idle_percent"] = starts["bluefog"][0]["idle_percent"]
    return found


if __name__ == "__main__":
    main()
