"""This module prints what a training has found, as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bluefog_pg.tools.bench.training import OWN_PACE

_MOST = 3  # waits that are told
_LITTLE = 0.01  # The share of the time below which a wait is not told.


def heading(model: str, ranks: int, found: dict[str, Any]) -> str:
    count = found["parameters"]
    what = f"{count:,} parameters ({4 * count / 1e6:.2f} MB)"
    columns = ("all ranks", "slowest rank", "fastest rank", "sent a step")
    units = (*["(samples/s)"] * 3, "(MB/rank)")
    return "\n".join([
        f"# {model}, {ranks} ranks: {what}, {found['batch']} {found['unit']} a step on each rank",
        f"#{'':>19}" + "".join(f"{column:>14}" for column in columns),
        f"#{'communication':>19}" + "".join(f"{unit:>14}" for unit in units),
    ])  # fmt: skip


def lines(found: dict[str, Any]) -> Iterator[str]:
    rates = found["rates"]
    yield (
        f" {found['communication']:>19}{sum(rates):>14.1f}{min(rates):>14.1f}{max(rates):>14.1f}"
        f"{_sent(found):>14}"
    )
    yield from (f"{'':>22}{text}" for text in _waits(found))


def _sent(found: dict[str, Any]) -> str:
    return "-" if found["communication"] == "win_get" else f"{found['sent'] / 1e6:.3f}"


def _waits(found: dict[str, Any]) -> Iterator[str]:
    seconds = found["seconds"]
    if found["communication"] in OWN_PACE:
        least, most = min(found["waited"]), max(found["waited"])
        yield f"ranks waited {least:.3f} to {most:.3f} s of {seconds:.1f} s, for none in particular"
        return
    totals = {rank: sum(waits.values()) for rank, waits in enumerate(found["waits"])}
    worst = sorted(totals, key=totals.__getitem__, reverse=True)
    told = [rank for rank in worst if totals[rank] > _LITTLE * seconds]
    for rank in told[:_MOST]:
        waits = found["waits"][rank]
        most = max(waits, key=waits.__getitem__)
        share = "" if len(waits) == 1 else f", {waits[most]:.2f} s of that"
        yield f"rank {rank} waited {totals[rank]:.2f} s of {seconds:.1f} s, for rank {most}{share}"
    if len(told) > _MOST:
        yield f"and {len(told) - _MOST} more ranks waited less than these"
    if not told:
        yield "no rank waited more than 1 % of the time"
