"""Compare windows with the bare memory, and with MPI's put from C, in the same processes.

Across hosts, compare them with a bare TCP connection.

The hosts are network namespaces of this machine, whose links `tc tbf` slows down. That needs root.

python benchmarks/windows.py                five minutes
python benchmarks/windows.py --quick        does it work
python benchmarks/windows.py --device cuda  of GPUs, which ranks share where there are fewer, beside
                                            torch's copies; not across hosts
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import collectives
import launch
import places
import raw_mpi
import windows_report


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
    if of_cpu:
        found["across_hosts"] = across_hosts(args.quick)
    windows_report.WINDOWS.write(found, places.place_of("windows", args, parser))


if __name__ == "__main__":
    main()
