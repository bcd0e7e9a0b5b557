"""Compare decentralized training with DistributedDataParallel on gloo.

Sleeping emulates the computing of a rank, so that many ranks have room on few cores. The
communication is real. The hosts are network namespaces of this machine, whose links `tc tbf` slows
down. That needs root.

python benchmarks/training.py                       everything: half an hour
python benchmarks/training.py --parts exact,epochs  of exact, overhead, slow, epochs, accurate and
                                                    scaling
python benchmarks/training.py --device cuda         on GPUs, shared where there are fewer:
                                                    exact and epochs, which emulate nothing
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import collectives
import launch
import places
import training_report

COMPUTING = ("exact", "epochs")  # Only these measures compute instead of emulating that.
PEERS = {"cpu": "gloo", "cuda": "nccl"}


def exact(device: str) -> dict[str, Any]:
    """Measure the error of one-peer exponential-2 averaging of float64 after log2(n) steps."""
    found: dict[str, Any] = {}
    for n in (2, 4, 8, 16):
        found[str(n)] = launch.run_ranks(
            "training_run.py", n, {"measure": "exact", "device": device}, 120
        )
    return found


def epochs(device: str) -> dict[str, Any]:
    """Measure the test accuracy of the ranks' mean after 30 epochs of digits, over ten seeds.

    Ranks train by SGD with momentum, at a learning rate that falls from 0.1 to 0.
    """
    names = (f"ddp {PEERS[device]}", "awc", "atc", "atc int8", "win_put")
    methods = [f"{name} sgd0.1" for name in names]
    found: dict[str, Any] = {}
    for n in (4, 8):
        plan = {"measure": "after_epochs", "methods": methods, "seeds": 10, "epochs": 30}
        plan["device"] = device
        found[str(n)] = launch.run_ranks("training_run.py", n, plan, 900)
    return found


def overhead() -> dict[str, Any]:
    """Measure a step of 4 ranks on this host, of a net of 4.5 MB that computes for 20 ms."""
    plan = {"measure": "rate", "width": 1024, "seconds": 0.02, "steps": 30}
    methods = ["none", "awc", "ddp gloo", "atc", "awc bf16", "ddp bluefog"]
    runs = [
        launch.run_ranks("training_run.py", 4, plan | {"methods": methods}, 300) for _ in range(5)
    ]
    return {"runs": runs}


def slow() -> dict[str, Any]:
    """Measure seconds until the loss is 0.2; one of 4 ranks takes 50 ms a step, the others 10."""
    plan = {"measure": "beside_a_slow_rank", "width": 128, "seconds": 0.01}
    plan["limit"] = training_report.SLOW_LIMIT
    methods = ("ddp gloo", "ddp bluefog", "gradient_allreduce", "awc", "win_put", "pairs")
    names = [f"{method} sgd{rate}" for method in methods for rate in (0.1, 0.2, 0.3)]
    plan |= {"methods": names, "target": 0.2}
    found: dict[str, Any] = launch.run_ranks("training_run.py", 4, plan, 400)
    return found


def accurate() -> dict[str, Any]:
    """Measure seconds until 95 % of the digits are right, 8 hosts, 100 Mbit/s, a net of 17.6 MB.

    50 ms of computing are 2 % of the time that its all_reduce takes; ResNet-50's on a V100 are 1 %.
    Each method has the best of three learning rates.
    """
    plan = {"measure": "until_accurate", "width": 2048, "seconds": 0.05}
    plan["target"] = training_report.TARGET
    methods = ("ddp gloo", "atc every8", "win_put", "atc every8 int8")
    names = [f"{method} sgd{rate}" for method in methods for rate in (0.1, 0.2, 0.3)]
    with launch.network.network(8, "100mbit") as hosts:
        found: dict[str, Any] = launch.run_ranks(
            "training_run.py", 8, plan | {"methods": names, "most_steps": 120}, 1800, hosts=hosts
        )
    return found


def scaling() -> dict[str, Any]:
    """Measure steps of 200 ms on 1 to 16 hosts, 1 Gbit/s, with communication and without.

    All hosts share this machine's cores, so a step without communication takes longer on many, too.
    """
    plan = {"measure": "rate", "width": 1024, "seconds": 0.2, "steps": 50}
    found: dict[str, Any] = {}
    for n in (1, 2, 4, 8, 16):
        with launch.network.network(n, "1gbit") as hosts:
            found[str(n)] = launch.run_ranks(
                "training_run.py",
                n,
                plan | {"methods": ["none sgd0.1", "awc sgd0.1", "ddp gloo sgd0.1"]},
                300,
                hosts=hosts,
            )
    return found


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    part.__name__: part for part in (exact, overhead, slow, epochs, accurate, scaling)
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=PEERS, default="cpu")
    parser.add_argument("--parts", help="default: all of the device's")
    args = parser.parse_args()
    collectives.require_device(parser, args.device)
    there = tuple(PARTS) if args.device == "cpu" else COMPUTING
    parts = args.parts.split(",") if args.parts else there
    if unknown := set(parts) - set(there):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    out = places.place_of("training", args, parser)
    found = json.loads(out.read_text()) if out.exists() else {}
    found["machine"] = collectives.machine()
    for part in parts:
        measure = PARTS[part]
        print(f"{part}: {measure.__doc__}")
        found[part] = measure(args.device) if part in COMPUTING else measure()
        out.write_text(json.dumps(found, indent=1))
    training_report.TRAINING.write(found, out)


if __name__ == "__main__":
    main()
