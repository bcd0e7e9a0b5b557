"""Compare bluefog across hosts with gloo, Open MPI and a bare socket, in one run.

The hosts are network namespaces of this machine, whose links `tc tbf` slows down. That needs root.

python benchmarks/across_hosts.py                       all of it: some minutes
python benchmarks/across_hosts.py --quick               does it work
python benchmarks/across_hosts.py --rates 1gbit --hosts 4 --ops all_reduce --sizes 64M
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from pathlib import Path
from typing import Any

import collectives
import hosts_report
import launch
import places

BACKENDS = ("bluefog", "gloo", "mpi", "wire")
RATES = ("1gbit", "100mbit", "unlimited")
SIZES = {"unlimited": "4,64,1K,4K", "1gbit": "1M,16M,64M"}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", help=",".join(RATES))
    parser.add_argument("--hosts", help="2,4,8")
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--ops", default="all_reduce,neighbor_one_peer")
    parser.add_argument("--sizes", help="in bytes, K or M")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="few sizes, one round, 2 hosts")
    parser.add_argument("--no-start", action="store_true", help="without the times of init")
    parser.add_argument("--deadline", type=float, default=900, help="seconds for one network")
    parser.add_argument("--out", type=Path, help="JSON; the tables and the plot go beside it")
    args = parser.parse_args()
    args.out = args.out or places.place_of("across_hosts", args, parser)
    args.rounds = args.rounds or (1 if args.quick else 5)
    args.rates = args.rates or ("1gbit,unlimited" if args.quick else ",".join(RATES))
    args.hosts = args.hosts or ("2" if args.quick else "2,4,8")
    args.sizes = args.sizes or ("4,1M" if args.quick else None)
    return args


def sizes(args: argparse.Namespace, rate: str) -> list[int]:
    text = args.sizes or SIZES.get(rate, "1M,16M")
    return [collectives.parse_size(size) for size in text.split(",")]


def compare(args: argparse.Namespace, backends: list[str], rate: str, hosts: int) -> list[Any]:
    if rate != "unlimited" and "bluefog" in backends:
        # MPI sends over bluefog's connections, and the kernel keeps the pace that it has set for
        # them.
        backends = [name for name in backends if name != "mpi"]
    plan = {"ops": args.ops.split(","), "sizes": sizes(args, rate), "backends": backends}
    plan |= {"rounds": args.rounds, "hosts": hosts}
    with launch.network.network(hosts, None if rate == "unlimited" else rate) as names:
        print(f"\n{hosts} hosts of {args.ranks_per_host}, {rate}", flush=True)
        n = hosts * args.ranks_per_host
        rows = launch.run_ranks("timing.py", n, plan, args.deadline, hosts=names)
    return [row | {"rate": rate, "hosts": hosts} for row in rows]


def starts(rounds: int) -> dict[str, list[float]]:
    """Measure init_process_group, on 2 hosts of 2 ranks, in turns, and return all seconds."""
    found: dict[str, list[float]] = {"bluefog": [], "gloo": []}
    with launch.network.network(2) as names:
        for _ in range(rounds):
            for name, times in found.items():
                args = {"probe": "start", "backend": name, "idle": 0}
                times.append(launch.run_ranks("probes.py", 4, args, 120, hosts=names)["init_s"])
    for name, times in found.items():
        print(f"{name}: init_process_group on 2 hosts of 2 ranks {statistics.median(times):.3f} s")
    return found


def main() -> None:
    args = parse_args()
    # SIGTERM exits, so that the ranks end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    backends = collectives.without_missing(args.backends.split(","))
    found: dict[str, Any] = {"machine": collectives.machine(), "rows": [], "starts": {}}
    for rate in args.rates.split(","):
        for hosts in map(int, args.hosts.split(",")):
            found["rows"] += compare(args, backends, rate, hosts)
    if not args.no_start:
        found["starts"] = starts(1 if args.quick else 5)
    hosts_report.ACROSS_HOSTS.write(found, args.out)
    if any(row["wrong"] for row in found["rows"]):
        sys.exit("wrong results: see the column #wrong")


if __name__ == "__main__":
    main()
