"""Where figures are kept: those of a whole measurement in results/, others in build/bench/."""

from __future__ import annotations

import argparse
from pathlib import Path

HERE = Path(__file__).parent
NARROW_NOTHING = {"device", "deadline", "out"}


def named(name: str, device: str) -> str:
    return f"{name}.json" if device == "cpu" else f"{name}_{device}.json"


def result(name: str, device: str = "cpu") -> Path:
    return HERE / "results" / named(name, device)


def place_of(name: str, args: argparse.Namespace, parser: argparse.ArgumentParser) -> Path:
    """Of a JSON file, whose folder is made. `args` as parsed, before defaults are filled in."""
    narrowed = {key for key, value in vars(args).items() if value != parser.get_default(key)}
    if not narrowed - NARROW_NOTHING:
        return result(name, args.device)
    place = HERE.parent / "build" / "bench" / named(name, args.device)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
