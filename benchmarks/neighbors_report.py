"""The goals, tables and plot of what neighbors.py measured.

As a program: print the tables and draw the plot again from a JSON file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import report
from report import KIB, MIB, Goal, Report, Row, judge, least_us, size_text

NAMES = {"raw_mpi": "raw MPI", "nccl": "NCCL"}
FLAT = 1.25  # x the cost per rank of the fewest ranks
Time = Callable[[Row], float]
CaseKey = tuple[str, int, int]  # operation, ranks, size
Ratios = dict[CaseKey, float]


def median_us(row: Row) -> float:
    return row["time_us"]


def by_peer(rows: Iterable[Row]) -> dict[CaseKey, dict[str, Row]]:
    found: dict[CaseKey, dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row["op"], row["ranks"], row["size"]), {})[row["peer"]] = row
    return found


def ratios(rows: Iterable[Row], over: str, under: str, time: Time = median_us) -> Ratios:
    """time of `over` / time of `under`, where both were timed."""
    return {
        what: time(peers[over]) / time(peers[under])
        for what, peers in by_peer(rows).items()
        if over in peers and under in peers
    }


# Goals


def worst_of(text: str, n: int, limit: float, unit: str, least: bool, found: Ratios) -> Goal:
    """Of all operations and sizes of n ranks, and which one that is."""
    own = {what: ratio for what, ratio in found.items() if what[1] == n}
    worst = (min if least else max)(own, key=lambda what: own[what], default=None)
    goal = judge(text, n, limit, own[worst] if worst else None, unit, least)
    if worst:
        op, _, size = worst
        goal.found += f" ({op}, {size_text(size)})"
    return goal


def against_mpi(rows: list[Row], n: int) -> Iterator[Goal]:
    large = [row for row in rows if row["size"] >= MIB]
    faster = ratios(large, "raw_mpi", "bluefog")
    yield worst_of("1 MiB and more, against raw MPI", n, 1.5, "x faster", True, faster)
    for size, limit in ((16 * KIB, 1), (4, 3)):
        slower = ratios([row for row in rows if row["size"] == size], "bluefog", "raw_mpi")
        text = f"{size_text(size)}, against raw MPI"
        yield worst_of(text, n, limit, "x its time", False, slower)


def once(text: str, rows: list[Row], n: int, key: str) -> Goal:
    counted = [row[key] for row in rows if row["ranks"] == n]
    return judge(text, n, 1, max(counted, default=None), "x", least=False)


def bytes_touched(rows: list[Row], n: int) -> Iterator[Goal]:
    text = "copies of the own tensor for each out-neighbour"
    yield once(text, rows, n, "copies_per_out_neighbor")
    yield once("readings of each peer's tensor", rows, n, "reads_per_in_neighbor")
    yield once("writings of the result", rows, n, "writes_of_result")


def normalised(scaling: dict[str, Any]) -> dict[tuple[str, int, int], dict[str, float]]:
    """Of (peer, size, ranks): us per rank if it had a core; and in parts of the fewest ranks'."""
    costs = {
        (row["peer"], row["size"], row["ranks"]): row["time_us"]
        * min(scaling["cores"], row["ranks"])
        / row["ranks"]
        for row in scaling["rows"]
    }
    fewest = min((n for _, _, n in costs), default=0)
    return {
        (peer, size, n): {"us": cost, "growth": cost / costs[peer, size, fewest]}
        for (peer, size, n), cost in costs.items()
    }


def flat(scaling: dict[str, Any]) -> Iterator[Goal]:
    costs = normalised(scaling)
    ranks = sorted({n for _, _, n in costs})
    for size in sorted({size for _, size, _ in costs}):
        growth = [costs["bluefog", size, n]["growth"] for n in ranks[1:]]
        text = f"one-peer exchange of {size_text(size)}, cost per rank"
        unit = f"x that of {ranks[0]}"
        yield judge(text, ranks[-1], FLAT, max(growth, default=None), unit, least=False)


def rival(rows: Iterable[Row]) -> str:
    """Whom averaging is compared with: on GPUs NCCL, else raw MPI."""
    return "nccl" if any(row["peer"] == "nccl" for row in rows) else "raw_mpi"


def goals(found: dict[str, Any]) -> list[Goal]:
    made: list[Goal] = []
    if rival(found["rows"]) == "nccl":  # against which none is set
        return made
    for n in sorted({row["ranks"] for row in found["rows"]}):
        made += against_mpi(found["rows"], n)
        fused = ratios(found["fused"], "list", "bluefog")
        made.append(worst_of("list of 100, against one", n, 1.5, "x its time", False, fused))
        made += bytes_touched(found["touched"], n)
    return [*made, *flat(found["scaling"])]


# Tables


def ratio_table(rows: list[Row]) -> str:
    other = rival(rows)
    medians, leasts = (ratios(rows, other, "bluefog", time) for time in (median_us, least_us))
    lines = [
        f"\ntime of {NAMES[other]} / time of bluefog: of medians, and of the least of all turns;",
        "floor: / time of torch.add, which no small call from Python goes below (large ones of it",
        "wait for fresh memory)",
        f"{'operation':<18} {'ranks':>5} {'size':>8} {'medians':>8} {'leasts':>8} {'floor':>8}",
    ]
    floors = ratios(rows, other, "torch.add")
    for (op, n, size), ratio in medians.items():
        least, floor = leasts[op, n, size], floors.get((op, n, size))
        lines.append(
            f"{op:<18} {n:>5} {size_text(size):>8} {ratio:>8.2f} {least:>8.2f} "
            f"{'-' if floor is None else format(floor, '.2f'):>8}"
        )
    return "\n".join(lines) if medians else ""


def fused_table(rows: list[Row]) -> str:
    medians, leasts = (ratios(rows, "list", "bluefog", time) for time in (median_us, least_us))
    lines = [
        "\n100 tensors in one call / one tensor of the same bytes",
        f"{'operation':<18} {'ranks':>5} {'medians':>8} {'leasts':>8}",
    ]
    lines += [
        f"{op:<18} {n:>5} {ratio:>8.2f} {leasts[op, n, size]:>8.2f}"
        for (op, n, size), ratio in medians.items()
    ]
    return "\n".join(lines) if medians else ""


def touched_table(rows: list[Row]) -> str:
    columns = f"{'in':>4} {'out':>4} {'copied':>7} {'read':>7} {'written':>7}"
    lines = [
        "\nbytes touched by a call, counted, in bytes of a tensor: copied into lanes for each",
        "out-neighbour; read of each in-neighbour's; written of the result and of copies",
        f"{'operation':<18} {'ranks':>5} {columns}",
    ]
    for row in rows:
        lines.append(
            f"{row['op']:<18} {row['ranks']:>5} {row['in_neighbors']:>4} {row['out_neighbors']:>4} "
            f"{row['copies_per_out_neighbor']:>7.4g} {row['reads_per_in_neighbor']:>7.4g} "
            f"{row['writes_of_result']:>7.4g}"
        )
    return "\n".join(lines) if rows else ""


def scaling_table(scaling: dict[str, Any]) -> str:
    costs, cores = normalised(scaling), scaling["cores"]
    times = {(r["peer"], r["size"], r["ranks"]): r["time_us"] for r in scaling["rows"]}
    lines = [
        f"\none-peer exchange on {cores} cores; cost per rank = time x min(cores, ranks) / ranks;",
        f"flat: at no number of ranks more than {FLAT:g} x that of the fewest (less is flat, too)",
        f"{'peer':<10} {'size':>8} {'ranks':>5} {'time (us)':>11} {'cost (us)':>11} {'growth':>7}",
    ]
    lines += [
        f"{peer:<10} {size_text(size):>8} {n:>5} {times[peer, size, n]:>11.2f} "
        f"{cost['us']:>11.2f} {cost['growth']:>7.2f}"
        for (peer, size, n), cost in sorted(costs.items())
    ]
    return "\n".join(lines) if costs else ""


def more(found: dict[str, Any]) -> str:
    made = (
        ratio_table(found["rows"]),
        fused_table(found["fused"]),
        touched_table(found["touched"]),
        scaling_table(found["scaling"]),
    )
    return "\n".join(filter(None, made))


NEIGHBORS = Report(goals, report.tables, report.plot, more=more)

if __name__ == "__main__":
    NEIGHBORS.show_again(Path(sys.argv[1]))
