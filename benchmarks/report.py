"""Write the tables of benchmarks again, each beside the JSON file that its figures come from.

python benchmarks/report.py                     all of benchmarks/results
python benchmarks/report.py FILE.json ...       those of some files, whose names begin as those do
python benchmarks/report.py --plot FILE.json    the plot, too, if the benchmark has one
"""

from __future__ import annotations

import argparse
from pathlib import Path

import algorithms_report
import c10d_windows_report
import collectives_report
import demo_report
import device_report
import hosts_report
import neighbors_report
import reconfigure_report
import training_report
import windows_report
from figures import Report

RESULTS = Path(__file__).parent / "results"
REPORTS = {
    "across_hosts": hosts_report.ACROSS_HOSTS,
    "algorithms": algorithms_report.ALGORITHMS,
    "c10d_windows": c10d_windows_report.C10D_WINDOWS,
    "collectives": collectives_report.COLLECTIVES,
    "demo": demo_report.DEMO,
    "gpu": device_report.GPU,
    "host_time": device_report.HOST_TIME,
    "neighbors": neighbors_report.NEIGHBORS,
    "reconfigure": reconfigure_report.RECONFIGURE,
    "training": training_report.TRAINING,
    "windows": windows_report.WINDOWS,
}


def report_of(path: Path) -> Report:
    for name, report in REPORTS.items():
        if path.stem.startswith(name):
            return report
    raise SystemExit(f"{path}: its name must begin with one of {', '.join(REPORTS)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.json")
    parser.add_argument("--plot", action="store_true", help="draw the plots again, too")
    args = parser.parse_args()
    for path in args.files or sorted(RESULTS.glob("*.json")):
        report_of(path).write_again(path, args.plot)
        print(path.with_suffix(".md"))


if __name__ == "__main__":
    main()
