"""This program measures speed on one GPU. A figure is a ratio of medians of two things in turns.

python -m tests.gpu.speed build/gpu/speed.json, with examples/ in PYTHONPATH
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.gpu import ranks, speeds

PLAN: tuple[tuple[Callable[..., list[speeds.Figure]], int, str | int], ...] = (
    (speeds.weighted_sums, 1, 64 << 20),
    (speeds.messages, 1, 64 << 20),
    (speeds.puts, 2, 64 << 20),
    (speeds.collectives, 1, "nccl"),
    (speeds.ddp_steps, 1, "nccl"),
    (speeds.collectives, 2, "nccl"),
    (speeds.ddp_steps, 2, "nccl"),
)


def slowest(of_ranks: list[list[speeds.Figure]]) -> list[speeds.Figure]:
    """Return each figure of the rank whose own took longest. Some ranks have no figures."""
    rows = zip(*filter(None, of_ranks), strict=True)
    return [max(row, key=lambda figure: figure.seconds[0]) for row in rows]


def main() -> None:
    out, found, bad = Path(sys.argv[1]), list[dict[str, Any]](), list[str]()
    for body, world, other in PLAN:
        try:
            figures = slowest(ranks.run(body, world, ranks.DEVICE, other))
        except AssertionError as error:
            bad.append(f"{body.__name__}, ranks: {world}")
            print(error, flush=True)
            continue
        found += [asdict(figure) for figure in figures]
        out.write_text(json.dumps(found, indent=1))
        for figure in figures:
            print(f"{figure.ratio:.3f}  {figure.what}", flush=True)
    if bad:
        sys.exit(f"failed: {'; '.join(bad)}")


if __name__ == "__main__":
    main()
