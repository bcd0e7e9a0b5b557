"""This module compares the errors, word by word, with tests/failures/messages/golden.txt.

`BLUEFOG_UPDATE_GOLDEN=1 pytest tests/failures/messages` writes that file anew. Read the difference.
"""

from __future__ import annotations

import difflib
import os
import re
import socket
from collections.abc import Iterable
from importlib import metadata
from itertools import chain
from pathlib import Path

from tests.support import inrank
from tests.support.messages.bodies import Told

GOLDEN = Path(__file__).parents[2] / "failures" / "messages" / "golden.txt"
# Each section has its module: test_arguments.py, test_init.py and so on.
SECTIONS = ("arguments", "init", "mismatches", "timeouts", "ends")

# These patterns match what differs from one run, or one machine, to the next.
VARIES = {
    "a group's name": (r"of group \S+\)", "of group G)"),
    "a process": (r"\bpid \d+\b", "pid P"),
    "this host": (rf"\bon {re.escape(socket.gethostname())}\b", "on HERE"),
    "this version": (rf"\bruns {re.escape(metadata.version('bluefog-pg'))};", "runs V;"),
}
# The graph builders raise these errors. They know no group that they could name.
NAMELESS = ("topologies, exponential of 0", "topologies, ring of -1", "topologies, ring in style 3")


def line(label: str, error: inrank.Raised) -> str:
    """Return `label: class [ranks]: text`, in one line."""
    text = error.text
    for pattern, name in VARIES.values():
        text = re.sub(pattern, name, text)
    ranks = "" if error.ranks is None else f" {list(error.ranks)}"
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"{label}: {error.kind}{ranks}: {escaped}"


def read() -> dict[str, list[str]]:
    """Return the lines of each section, also of those that no test has."""
    lines = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    of_section: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for text in lines:
        of_section.setdefault(text.split("/", 1)[0], []).append(text)
    return of_section


def write(of_section: dict[str, list[str]]) -> None:
    GOLDEN.parent.mkdir(exist_ok=True)
    lines = chain.from_iterable(of_section[section] for section in SECTIONS)
    GOLDEN.write_text("".join(f"{text}\n" for text in lines))


def raised(told: Iterable[Told]) -> dict[str, inrank.Raised]:
    """Return what the ranks told, by its label. All of it must be errors of bluefog."""
    everything = [*chain.from_iterable(told)]
    silent = sorted(label for label, error in everything if error is None)
    assert not silent, f"nothing raised: {silent}"
    errors = {label: error for label, error in everything if error}
    assert len(errors) == len(everything), "two messages with one label"
    foreign = [e for label, e in errors.items() if not (label in NAMELESS or "bluefog" in e.text)]
    assert not foreign, f"not of bluefog: {foreign}"
    return errors


def agree(section: str, told: Iterable[Told]) -> None:
    """Assert that the ranks told what the section of the file says, no more and no less."""
    now = sorted(line(f"{section}/{label}", error) for label, error in raised(told).items())
    before = read()
    if os.environ.get("BLUEFOG_UPDATE_GOLDEN") == "1":
        write(before | {section: now})
        return
    difference = difflib.unified_diff(
        before[section], now, GOLDEN.name, "what they say now", lineterm="", n=0
    )
    text = "\n".join(difference)
    assert not text, f"messages of {section!r} changed:\n{text}"
