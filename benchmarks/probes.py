"""What is not a collective: starting, idling, and a DDP step. Run by collectives.py, by rank.

start   seconds of init_process_group and of the first all_reduce after it, then CPU when idle
ddp     seconds of a DDP step of examples/train_digits.py, bluefog and gloo taking turns
"""

from __future__ import annotations

import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import launch
import torch
import torch.distributed as dist

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
        before = time.process_time()  # of all threads of this process
        time.sleep(me.args["idle"])
        percent = 100 * (time.process_time() - before) / me.args["idle"]
        found["idle_percent"] = me.slowest("percent", percent)
    me.together("end")
    return found


def ddp(me: launch.Rank) -> dict[str, float]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import train_digits

    dist.init_process_group(
        me.args["backends"][0], store=me.store, rank=me.rank, world_size=me.n, timeout=LIMIT
    )
    images, labels, *_ = train_digits.load_data(me.rank, me.n, seed=0)
    batch = train_digits.BATCH
    nets, times = {}, {}
    for name in me.args["backends"]:
        group = dist.new_group(backend=name, timeout=LIMIT)
        net = train_digits.make_net()
        net = torch.nn.parallel.DistributedDataParallel(net, process_group=group)
        nets[name] = (net, torch.optim.Adam(net.parameters(), lr=3e-3))
        times[name] = list[float]()
    for _ in range(me.args["rounds"] + 1):
        for name, (net, optimizer) in nets.items():
            dist.barrier()
            begun = time.perf_counter()
            for _ in range(me.args["steps"]):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(images[:batch]), labels[:batch])
                loss.backward()
                optimizer.step()
            times[name].append((time.perf_counter() - begun) / me.args["steps"])
    # The first round warms up.
    return {name: me.slowest(name, statistics.median(each[1:])) for name, each in times.items()}


def main() -> None:
    me = launch.join()
    found: Any = {"start": start, "ddp": ddp}[me.args["probe"]](me)
    me.give_back(found)
    me.together("found")
    dist.destroy_process_group()


def run_all(n: int, backends: list[str], deadline: float, quick: bool) -> dict[str, Any]:
    """All probes with n ranks; fresh processes for every start, the backends in turn."""
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
    args = {"probe": "ddp", "backends": backends, "rounds": 3 if quick else 15, "steps": 20}
    found["ddp_step_s"] = steps = launch.run_ranks("probes.py", n, args, deadline)
    for name, runs in starts.items():
        inits = statistics.median(run["init_s"] for run in runs)
        firsts = statistics.median(run["first_all_reduce_s"] for run in runs)
        print(
            f"{name}, {n} ranks: init_process_group {inits:.3f} s, first all_reduce "
            f"{firsts * 1e3:.1f} ms, idle {runs[0]['idle_percent']:.2f} % of a core, "
            f"DDP step {steps[name] * 1e3:.2f} ms",
            flush=True,
        )
    if len(backends) == 2:
        init = {b: statistics.median(run["init_s"] for run in starts[b]) for b in backends}
        found["init_beyond_gloo_s"] = init["bluefog"] - init["gloo"]
        found["ddp_ratio"] = steps["bluefog"] / steps["gloo"]
    if "bluefog" in backends:
        found["idle_percent"] = starts["bluefog"][0]["idle_percent"]
    return found


if __name__ == "__main__":
    main()
