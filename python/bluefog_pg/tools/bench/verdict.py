"""This module says in a sentence what a comparison has found."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from bluefog_pg.tools.bench.collectives import BACKENDS
from bluefog_pg.tools.bench.columns import ratio

_SMALL, _LARGE = 4 << 10, 1 << 20  # in bytes
_UNIT = " of gloo's time"
_ALIKE = 1.1  # Times whose ratio is less far from 1 count as equal.


def verdicts(rows: list[dict[str, Any]], ranks: int) -> Iterator[str]:
    """Yield a sentence for each operation."""
    for operation in dict.fromkeys(row["op"] for row in rows):
        own = [row for row in rows if row["op"] == operation]
        groups = {
            "small messages (up to 4 KiB)": [row for row in own if row["size"] <= _SMALL],
            "medium ones": [row for row in own if _SMALL < row["size"] < _LARGE],
            "large ones (1 MiB and more)": [row for row in own if row["size"] >= _LARGE],
        }
        parts = [f"{_share(found)} on {which}" for which, found in groups.items() if found]
        parts[1:] = [part.replace(_UNIT, "") for part in parts[1:]]
        yield f"{operation}, {ranks} ranks: bluefog takes {_listed(parts)}."


def is_right(rows: list[dict[str, Any]]) -> bool:
    return not any(row[name]["wrong"] for row in rows for name in BACKENDS)


def _share(rows: list[dict[str, Any]]) -> str:
    times = statistics.geometric_mean(map(ratio, rows))
    if times >= 1.8:
        return f"1/{times:.0f}{_UNIT}"
    if times >= _ALIKE:
        return f"{100 / times:.0f} %{_UNIT}"
    if times > 1 / _ALIKE:
        return "as long as gloo"
    return f"{1 / times:.1f} times gloo's time"


def _listed(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
