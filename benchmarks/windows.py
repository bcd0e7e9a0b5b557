"""Compare windows with the bare memory, and with MPI's put from C, in the same processes; and
across hosts with a bare TCP connection.

The hosts are network namespaces of this machine, whose links `tc tbf` slows down: needs root.

python benchmarks/windows.py                five minutes
python benchmarks/windows.py --quick        does it work
python benchmarks/windows.py --device cuda  of GPUs, which ranks share where there are fewer, beside
                                            torch's copies; not across hosts
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import collectives
import launch
import places
import raw_mpi

# What, of which call, against which, at which sizes, at most so many times its time.
Goal = tuple[str, str, str, tuple[int, ...], float]
GOALS: tuple[Goal, ...] = (
    ("put, against memcpy", "put", "memcpy", (4 << 20, 64 << 20), 1.25),
    ("accumulate, against put", "accumulate", "put", (4 << 20, 64 << 20), 1.5),
    ("put, against MPI_Put and flush", "put", "MPI_Put", (4, 4096), 2.0),
    ("update, against reading and writing once", "update", "bare average", (4 << 20,), 1.3),
)
GOALS_OF_DEVICES: tuple[Goal, ...] = (("put, against a copy", "put", "memcpy", (64 << 20,), 1.2),)


def report(rows: list[dict[str, Any]], goals: Sequence[Goal]) -> None:
    of = {(row["ranks"], row["size"], row["call"]): row["us"] for row in rows}
    print(f"{'ranks':>5} {'bytes':>9}  call              us")
    for (ranks, size, call), us in of.items():
        print(f"{ranks:>5} {size:>9}  {call:<16} {us:>9.2f}")
    print(f"\n{'goal':<42} {'ranks':>5} {'bytes':>9}  limit  found")
    for what, call, peer, sizes, limit in goals:
        for ranks in sorted({row["ranks"] for row in rows}):
            for size in sizes:
                if (ranks, size, call) in of:
                    found = of[ranks, size, call] / of[ranks, size, peer]
                    verdict = "reached" if found <= limit else "missed"
                    print(f"{what:<42} {ranks:>5} {size:>9} {limit:>6} {found:>6.2f} {verdict}")
    if (2, 4 << 20, "put, busy") in of:
        busy, idle = of[2, 4 << 20, "put, busy"], of[2, 4 << 20, "put, idle"]
        print(f"{'put, target computes, against it sleeps':<57} +- 0.2 {judged(busy / idle)}")


def judged(ratio: float) -> str:
    return f"{ratio:>6.2f} {'reached' if abs(ratio - 1) <= 0.2 else 'missed'}"


def report_far(rows: list[dict[str, Any]]) -> None:
    of = {(row["size"], row["call"]): row["s"] for row in rows}
    print(f"\n2 hosts, 1 Gbit/s\n{'bytes':>9}  {'call':<26} {'ms':>8}  of the wire's rate")
    for (size, call), s in of.items():
        print(f"{size:>9}  {call:<26} {s * 1e3:>8.2f}  {of[size, 'wire'] / s:>6.1%}")
    for size in sorted({size for size, _ in of}):
        ratio = of[size, "put, busy"] / of[size, "put"]
        print(f"{size:>9}  put, target computes, against it sleeps: {judged(ratio)}")


def on_a_host(device: str, quick: bool) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        of_cpu = device == "cpu"
        library = raw_mpi.compile_into(Path(folder), "raw_window.c") if of_cpu else ""
        plan = {
            "library": str(library),
            "device": device,
            "sizes": [4, 4096, 4 << 20] if quick else [4, 4096, 1 << 20, 4 << 20, 64 << 20],
            "rounds": 3 if quick else 9,
            "seconds": 0.01 if quick else 0.05,
        }
        ran = [launch.run_ranks("window_calls.py", n, plan, 300, mpi=of_cpu) for n in (2, 4)]
    return [row for rows in ran for row in rows]


def across_hosts(quick: bool) -> list[dict[str, Any]]:
    plan = {"sizes": [1 << 20] if quick else [1 << 20, 16 << 20, 64 << 20]}
    plan |= {"rounds": 1 if quick else 5, "seconds": 0.1 if quick else 1.0}
    with launch.network.network(2, "1gbit") as hosts:
        rows: list[dict[str, Any]] = launch.run_ranks(
            "window_far_calls.py", 2, plan, 300, hosts=hosts
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few sizes, few rounds")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    args = parser.parse_args()
    collectives.require_device(parser, args.device)
    of_cpu = args.device == "cpu"
    if of_cpu and (lacking := raw_mpi.lacking()):
        sys.exit(f"raw MPI, with which windows are compared, needs {lacking}")
    found: dict[str, Any] = {"machine": collectives.machine()}
    found["rows"] = on_a_host(args.device, args.quick)
    report(found["rows"], GOALS if of_cpu else GOALS_OF_DEVICES)
    if of_cpu:
        found["across_hosts"] = across_hosts(args.quick)
        report_far(found["across_hosts"])
    places.place_of("windows", args, parser).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
