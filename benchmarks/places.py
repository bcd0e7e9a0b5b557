"""Where figures are kept: those of a whole measurement in results/, others in build/bench/."""

from __future__ import annotations

import argparse
from pathlib import Path

HERE = Path(__file__).parent
NARROW_NOTHING = {"device", "deadline", "out"}


def place_of(name: str, args: argparse.Namespace, parser: argparse.ArgumentParser) -> Path:
    """Of a JSON file. `args` as parsed, before defaults are filled in."""
    narrowed = {key for key, value in vars(args).items() if value != parser.get_default(key)}
    folder = HERE.parent / "build" / "bench" if narrowed - NARROW_NOTHING else HERE / "results"
    return folder / f"{name}.json"
