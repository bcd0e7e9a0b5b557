"""Compare windows with the bare memory, and with MPI's put from C, in the same processes; and
across hosts with a bare TCP connection.

The hosts are network namespaces of this machine, whose links `tc tbf` slows down: needs root.

python benchmarks/windows.py            five minutes
python benchmarks/windows.py --quick    does it work
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import collectives
import launch
import raw_mpi

RESULTS = Path(__file__).parent / "results" / "windows.json"
# What, of which call, against which, at which sizes, at most so many times its time.
GOALS = (
    ("put, against memcpy", "put", "memcpy", (4 << 20, 64 << 20), 1.25),
    ("accumulate, against put", "accumulate", "put", (4 << 20, 64 << 20), 1.5),
    ("put, against MPI_Put and flush", "put", "MPI_Put", (4, 4096), 2.0),
    ("update, against reading and writing once", "update", "bare average", (4 << 20,), 1.3),
)


def report(rows: list[dict[str, Any]]) -> None:
    of = {(row["ranks"], row["size"], row["call"]): row["us"] for row in rows}
    print(f"{'ranks':>5} {'bytes':>9}  call              us")
    for (ranks, size, call), us in of.items():
        print(f"{ranks:>5} {size:>9}  {call:<16} {us:>9.2f}")
    print(f"\n{'goal':<42} {'ranks':>5} {'bytes':>9}  limit  found")
    for what, call, peer, sizes, limit in GOALS:
        for ranks in sorted({row["ranks"] for row in rows}):
            for size in sizes:
                if (ranks, size, call) in of:
                    found = of[ranks, size, call] / of[ranks, size, peer]
                    verdict = "reached" if found <= limit else "missed"
                    print(f"{what:<42} {ranks:>5} {size:>9} {limit:>6} {found:>6.2f} {verdict}")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few sizes, few rounds")
    args = parser.parse_args()
    if lacking := raw_mpi.lacking():
        sys.exit(f"there is no {lacking}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        library = raw_mpi.compile_into(Path(folder), "raw_window.c")
        plan = {
            "library": str(library),
            "sizes": [4, 4096, 4 << 20] if args.quick else [4, 4096, 1 << 20, 4 << 20, 64 << 20],
            "rounds": 3 if args.quick else 9,
            "seconds": 0.01 if args.quick else 0.05,
        }
        for n in (2, 4):
            rows += launch.run_ranks("window_calls.py", n, plan, 300, mpi=True)
    report(rows)
    far = {"sizes": [1 << 20] if args.quick else [1 << 20, 16 << 20, 64 << 20]}
    far |= {"rounds": 1 if args.quick else 5, "seconds": 0.1 if args.quick else 1.0}
    with launch.network.network(2, "1gbit") as hosts:
        far_rows = launch.run_ranks("window_far_calls.py", 2, far, 300, hosts=hosts)
    report_far(far_rows)
    if not args.quick:
        found = {"machine": collectives.machine(), "rows": rows, "across_hosts": far_rows}
        RESULTS.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
