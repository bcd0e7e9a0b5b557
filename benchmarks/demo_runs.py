"""Run the demo of `make demo` again and again, and keep what it measured.

    python benchmarks/demo_runs.py [--runs 5]     needs scikit-learn and matplotlib

A table of the medians and the curves of the last run go into results/demo.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from demo_report import DEMO

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "demo.json"
BFRUN = [sys.executable, "-m", "bluefog_pg", "run", "-np", "4", "--keep-going"]
POINTS = 100  # of a curve


def run_demo(folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    script = HERE.parent / "examples" / "demo.py"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([*BFRUN, str(script), "--out", str(folder)], env=environment, check=True)
    took = time.perf_counter() - began
    return {"took": took, "rows": json.loads((folder / "demo.json").read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.runs):
            runs.append(run_demo(Path(folder)))
    curves = {}
    for row in runs[-1]["rows"]:
        losses = row["losses"]
        curves[row["title"]] = losses[:: max(1, len(losses) // POINTS)]
    for run in runs:
        for row in run["rows"]:
            del row["losses"]
    found = {"torch": torch.__version__, "runs": runs, "curves": curves}
    DEMO.write(found, args.out)


if __name__ == "__main__":
    main()
