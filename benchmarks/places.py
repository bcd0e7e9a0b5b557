"""This module says where figures are kept.

Those of a whole measurement go to results/, and others to build/bench/.
"""

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
    """Return the place of a JSON file, and make its folder.

    `args` are as parsed, without defaults.
    """
    device = getattr(args, "device", "cpu")  # Programs that need no GPU do not ask for one.
    narrowed = {key for key, value in vars(args).items() if value != parser.get_default(key)}
    if not narrowed - NARROW_NOTHING:
        return result(name, device)
    place = HERE.parent / "build" / "bench" / named(name, device)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
