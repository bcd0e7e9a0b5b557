"""Compare averaging with neighbors with raw MPI: a C program's calls, in the same processes.

On GPUs, compare it with NCCL's messages and an average of torch's.

python benchmarks/neighbors.py                       all of it: some minutes
python benchmarks/neighbors.py --quick               does it work: half a minute
python benchmarks/neighbors.py --ops pair_gossip --sizes 4,1M --ranks 2 --scaling none
python benchmarks/neighbors.py --device cuda         of GPUs, shared where there are fewer
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import collectives
import launch
import neighbors_report
import places
import raw_mpi

from bluefog_pg.tools.bench import cases

BACKENDS = {
    "cpu": ("bluefog", "raw_mpi", "torch.add", "mpi", "gloo", "memcpy"),
    "cuda": ("bluefog", "nccl", "torch.add", "memcpy"),
}
SIZES = "4,16K,1M,4M,64M"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--ops", default=",".join(cases.NEIGHBOR))
    parser.add_argument("--sizes", help=f"in bytes, K or M; default {SIZES}")
    parser.add_argument("--device", choices=BACKENDS, default="cpu")
    parser.add_argument("--backends", help="the first three are the default of those of a device")
    parser.add_argument("--scaling", help="ranks that exchange one-peer; default 2,4,8,16; or none")
    parser.add_argument("--rounds", type=int, help="turns of each peer; default 9")
    parser.add_argument("--quick", action="store_true", help="few sizes, few rounds")
    parser.add_argument("--deadline", type=float, default=900, help="seconds for one set of ranks")
    parser.add_argument("--out", type=Path, help="JSON; the tables and the plot go beside it")
    args = parser.parse_args()
    out = places.place_of("neighbors", args, parser)
    args.ranks = [int(n) for n in args.ranks.split(",")]
    args.sizes = args.sizes or ("4,16K,1M" if args.quick else SIZES)
    args.sizes = [collectives.parse_size(text) for text in args.sizes.split(",")]
    args.scaling = args.scaling or ("2,4" if args.quick else "2,4,8,16")
    args.scaling = [] if args.scaling == "none" else [int(n) for n in args.scaling.split(",")]
    collectives.require_device(parser, args.device)
    if args.device == "cuda":
        args.scaling = []  # Scaling is about ranks that share cores.
    args.out = args.out or out
    args.rounds = args.rounds or (3 if args.quick else 9)
    backends = BACKENDS[args.device]
    args.ops = args.ops.split(",")
    args.backends = args.backends.split(",") if args.backends else list(backends[:3])
    for given, known in ((args.ops, cases.NEIGHBOR), (args.backends, backends)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if min(args.ranks + args.scaling) < 2:
        parser.error("two ranks or more")
    return args


def without_missing(backends: list[str]) -> list[str]:
    """Leave out what lacks mpi4py, mpirun or mpicc; the others are compared without it."""
    lacking = raw_mpi.lacking()
    if lacking and "raw_mpi" in backends:
        print(f"raw_mpi left out: it needs {lacking}")
        backends = [name for name in backends if name != "raw_mpi"]
    return collectives.without_missing(backends)


def exchanges(args: argparse.Namespace, backends: list[str], library: str) -> dict[str, Any]:
    """Measure averaging against the others, of a list against one tensor, and bytes touched."""
    found: dict[str, Any] = {"rows": [], "fused": [], "touched": []}
    # Turns are long, as a call of raw MPI takes less than ranks differ in leaving a barrier.
    plan = {"rounds": args.rounds, "slice": 0.02 if args.quick else 0.05, "most": 1_000_000}
    for n in args.ranks:
        ops = [op for op in args.ops if op != cases.PAIR or n % 2 == 0]
        of = {"ops": ops, "sizes": args.sizes, "backends": backends, "plan": plan}
        of |= {"raw_mpi": library, "device": args.device}
        mpi = bool({"mpi", "raw_mpi"} & set(backends))
        for key, rows in launch.run_ranks("exchanges.py", n, of, args.deadline, mpi).items():
            found[key] += rows
    return found


def scaling(args: argparse.Namespace) -> dict[str, Any]:
    # Each of 16 ranks on 2 cores runs every 20 or 30 ms, so a turn takes longer than that.
    plan = {"rounds": args.rounds, "slice": 0.02 if args.quick else 0.1, "most": 1_000_000}
    of = {"ranks": sorted(args.scaling), "sizes": [4, 1 << 20], "plan": plan}
    rows = launch.run_ranks("scaling.py", max(args.scaling), of, args.deadline)
    return {"cores": len(os.sched_getaffinity(0)), "rows": rows}


def main() -> None:
    args = parse_args()
    # SIGTERM exits, so that the ranks end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    backends = without_missing(args.backends)
    found: dict[str, Any] = {"machine": collectives.machine()}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        raw = "raw_mpi" in backends
        library = str(raw_mpi.compile_into(Path(folder))) if raw else ""
        found |= exchanges(args, backends, library)
    found["scaling"] = {"cores": 0, "rows": []}
    if args.scaling and "bluefog" in backends:
        found["scaling"] = scaling(args)
    neighbors_report.NEIGHBORS.write(found, args.out)
    rows = [*found["rows"], *found["fused"], *found["scaling"]["rows"]]
    if any(row["wrong"] for row in rows):
        sys.exit("wrong results: see the column #wrong")


if __name__ == "__main__":
    main()
