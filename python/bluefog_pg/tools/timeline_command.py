"""Merge the timelines of all ranks into one file: `python -m bluefog_pg timeline PREFIX`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

# Viewers tell processes apart by number, so the numbers of two ranks' processes are this far apart.
_OF_A_RANK = 1_000_000


def add_to(commands: Any) -> None:
    command: argparse.ArgumentParser = commands.add_parser(
        "timeline",
        help="merge the files that BLUEFOG_TIMELINE=PREFIX has made",
        description="Merge PREFIX0.json, PREFIX1.json and so on into one file for chrome://tracing "
        "or https://ui.perfetto.dev.",
    )
    command.add_argument("prefix")
    command.add_argument("-o", "--output", help="file, in place of PREFIXmerged.json")
    command.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    folder, start = os.path.split(args.prefix)
    ranks = re.compile(re.escape(start) + r"(\d+)\.json")
    files = {
        int(found[1]): path
        for path in Path(folder or ".").glob("*.json")
        if (found := ranks.fullmatch(path.name))
    }
    if not files:
        raise SystemExit(f"[bluefog] timeline: there is no file {args.prefix}0.json, nor any other")
    events = [event for rank, path in sorted(files.items()) for event in _of_rank(rank, path)]
    output = Path(args.output or f"{args.prefix}merged.json")
    output.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    print(f"{output}: {len(events)} events of {len(files)} ranks")


def _of_rank(rank: int, path: Path) -> list[dict[str, Any]]:
    """Return a rank's events by the time of day, which hosts share, and name the rank in them."""
    text = path.read_text().rstrip()
    events: list[dict[str, Any]] = json.loads(text if text.endswith("]") else f"{text}]")
    shift = 0
    merged = []
    for event in events:
        if event["ph"] == "M" and event["name"] == "clock":
            shift = event["args"]["day_us"] - event["ts"]
            continue
        if event["ph"] == "M":
            event["args"] = {"name": f"rank {rank}: {event['args']['name']}"}
        merged.append(event | {"pid": event["pid"] + rank * _OF_A_RANK, "ts": event["ts"] + shift})
    return merged
