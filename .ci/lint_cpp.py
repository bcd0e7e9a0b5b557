"""Judge what clang-format and the compiler accept: names of types and the layers of src/.

    python3 .ci/lint_cpp.py        in the root of the repository; make lint does it

One line is printed for each fault, and the exit code is 1 if there are any.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = {".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl"}
# A file may include files of its own folder and of the layers before it. Folders on one line form
# one layer, and do not include each other.
LAYERS = (
    ("core",),
    ("bootstrap", "device"),
    ("transport/tuning",),
    ("transport/memory",),
    ("transport/operations",),
    ("transport/boards", "transport/messages"),
    ("transport/hosts",),
    ("transport/engine",),
    ("algorithms",),
    ("window",),
    ("process_group",),
    ("bindings",),
)
FOLDERS = {folder: height for height, layer in enumerate(LAYERS) for folder in layer}

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# This finds the definition of a class, struct, union or enum by a plain name. It skips `struct
# Outer::Inner {`, which belongs to the declaration inside of Outer.
TYPE = re.compile(
    r"^[ \t]*(?:template <[^\n]*>\s*)?(?:class|struct|union|enum class|enum)\s+"
    r"(?:alignas\([^)]*\)\s*)?(?:\[\[\w+\]\]\s*)?(?:\w+::)*(\w+)(?:\s+final)?\s*(?::[^:;{][^;{]*)?\{",
    re.MULTILINE,
)

KEPT = "Each type of src/ has a name of its own, and no layer includes one above it."


def sources(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.suffix in SOURCES and path.is_file():
            yield path


def names_declared_twice(root: Path) -> Iterator[str]:
    places = defaultdict(list)
    for path in sources(root):
        text = path.read_text()
        for found in TYPE.finditer(text):
            line = text.count("\n", 0, found.start(1)) + 1
            places[found[1]].append(f"{path.relative_to(root.parent)}:{line}")
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{found[0]}: {name} is also the name of another type: {', '.join(found[1:])}"


def folder_of(path: str) -> str | None:
    """Return the folder of LAYERS that a path below src/ lies in, or None."""
    parents = (str(parent) for parent in Path(path).parents)
    return next((parent for parent in parents if parent in FOLDERS), None)


def includes_that_run_up(root: Path) -> Iterator[str]:
    for path in sources(root):
        inside = str(path.relative_to(root))
        here = folder_of(inside)
        if here is None:
            yield f"src/{inside}: this folder has no layer: give it one in {Path(__file__).name}"
            continue
        text = path.read_text()
        for found in INCLUDE.finditer(text):
            there = folder_of(found[1])
            if there in (None, here) or FOLDERS[str(there)] < FOLDERS[here]:
                continue
            line = text.count("\n", 0, found.start()) + 1
            yield f"src/{inside}:{line}: {here} is below {there}, and must not include it"


def main(root: Path = Path("src")) -> int:
    faults = [*names_declared_twice(root), *includes_that_run_up(root)]
    print("\n".join(faults) if faults else KEPT)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
