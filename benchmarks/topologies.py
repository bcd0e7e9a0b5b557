"""Compare how fast graphs average, by spectral gaps of 4 to 4,096 ranks and their closed forms.

python benchmarks/topologies.py             a table: some minutes
python benchmarks/topologies.py --ranks 4,16
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from bluefog_pg import topology_util as tu

# A Row is a builder, its spectral gap where that has a closed form, and the most ranks for it.
Row = tuple[Callable[[int], Any], Callable[[int], float] | None, int]


GRAPHS: dict[str, Row] = {
    "ring": (tu.RingGraph, lambda n: 2 / 3 * (1 - math.cos(2 * math.pi / n)), 4096),
    "directed ring": (lambda n: tu.RingGraph(n, 1), lambda n: 1 - math.cos(math.pi / n), 4096),
    "grid": (tu.MeshGrid2DGraph, None, 4096),
    "torus": (tu.TorusGraph, None, 4096),
    "star": (tu.StarGraph, lambda n: 1 / n, 4096),
    "hypercube": (tu.HypercubeGraph, lambda n: 2 / (math.log2(n) + 1), 4096),
    "exponential-2": (
        tu.ExponentialTwoGraph,
        lambda n: 2 / (2 + math.floor(math.log2(n - 1))),
        4096,
    ),
    "full": (tu.FullyConnectedGraph, lambda _n: 1.0, 256),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="4,16,64,256,1024,4096")
    sizes = [int(size) for size in parser.parse_args().ranks.split(",")]
    print(f"{'spectral gap':<16}" + "".join(f"{size:>10}" for size in sizes) + "   closed form")
    for name, (make, closed, most) in GRAPHS.items():
        line, off = f"{name:<16}", 0.0
        for size in sizes:
            if size > most:
                line += f"{'-':>10}"
                continue
            gap = tu.spectral_gap(make(size))
            line += f"{gap:>10.2g}"
            if closed is not None:
                off = max(off, abs(gap - closed(size)))
        print(line + ("   none" if closed is None else f"   off by {off:.1e}"), flush=True)
    exact = (len(tu.OnePeerExponentialTwoGraphs(size)) for size in sizes)
    print(f"{'one-peer exp2':<16}" + "".join(f"{steps:>10}" for steps in exact) + "   steps, exact")


if __name__ == "__main__":
    main()
