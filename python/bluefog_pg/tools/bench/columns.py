"""This module prints comparisons in the columns of nccl-tests, once for each backend."""

from __future__ import annotations

from typing import Any

from bluefog_pg.tools.bench.collectives import BACKENDS

_EACH = ("time", "algbw", "busbw", "#wrong")
_UNITS = ("(us)", "(GB/s)", "(GB/s)", "")


def heading(operation: str, ranks: int) -> str:
    names = "".join(f"{name:>30}" for name in BACKENDS)
    each, units = (_cells(*texts) * len(BACKENDS) for texts in (_EACH, _UNITS))
    lines = (
        f"# {operation}, {ranks} ranks",
        f"#{'':>28}{names}{'gloo /':>9}",
        f"#{'size':>10}{'count':>10}{'type':>8}{each}{'bluefog':>9}",
        f"#{'(B)':>10}{'(elem.)':>10}{'':>8}{units}",
    )
    return "\n".join(line.rstrip() for line in lines)


def line(row: dict[str, Any]) -> str:
    cells = "".join(
        _cells(f"{of['us']:.1f}", f"{of['algbw']:.2f}", f"{of['busbw']:.2f}", of["wrong"])
        for of in (row[name] for name in BACKENDS)
    )
    return f" {row['size']:>10}{row['count']:>10}{'float32':>8}{cells}{ratio(row):>9.2f}"


def _cells(time: object, algbw: object, busbw: object, wrong: object) -> str:
    return f"{time:>9}{algbw:>7}{busbw:>7}{wrong:>7}"


def ratio(row: dict[str, Any]) -> float:
    """Return how many times as long gloo takes as bluefog."""
    found: float = row["gloo"]["us"] / row["bluefog"]["us"]
    return found
