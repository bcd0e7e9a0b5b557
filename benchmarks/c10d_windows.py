"""Compare c10d's own windows with messages of gloo, and with memcpy, on two ranks of this host.

They are there from torch 2.14 on.

python benchmarks/c10d_windows.py           a minute
python benchmarks/c10d_windows.py --quick   does it work
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import c10d_windows_report
import collectives
import launch
import places
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few sizes, few rounds")
    args = parser.parse_args()
    if not hasattr(dist, "_new_window"):
        sys.exit("torch has c10d's windows from 2.14 on")
    plan = {
        "sizes": [4, 4096] if args.quick else [4, 4096, 1 << 20, 64 << 20],
        "rounds": 2 if args.quick else 9,
    }
    found: dict[str, Any] = {"machine": collectives.machine()}
    found["rows"] = launch.run_ranks("c10d_window_calls.py", 2, plan, 300)
    place = places.place_of("c10d_windows", args, parser)
    c10d_windows_report.C10D_WINDOWS.write(found, place)


if __name__ == "__main__":
    main()
