"""This module makes the goals and tables of what training.py measured, part by part."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from figures import Goal, Report, goal_table, judge, table

SLOW_LIMIT = 6.0  # seconds that a method has beside a slow rank
TARGET = 0.95  # the test accuracy to reach
DDP = "ddp gloo"
Found = dict[str, Any]


def by_rate(found: Found) -> dict[str, dict[str, Any]]:
    """Return what was found with each learning rate, by method."""
    methods: dict[str, dict[str, Any]] = {}
    for name, value in found.items():
        method, rate = name.rsplit(" sgd", 1)
        methods.setdefault(method, {})[rate] = value
    return methods


def rate_table(methods: dict[str, dict[str, Any]], text: Callable[[Any], str]) -> str:
    rates = list(next(iter(methods.values())))
    head = ["method", *(f"learning rate {rate}" for rate in rates)]
    return table(head, ((method, *map(text, own.values())) for method, own in methods.items()))


def exact(found: Found) -> Iterator[str]:
    yield goal_table(
        judge("error of one-peer exponential-2", int(n), 1e-12, error, "", least=False)
        for n, error in found.items()
    )


def overhead(found: Found) -> Iterator[str]:
    runs = found["runs"]
    median = {method: statistics.median(run[method] for run in runs) for method in runs[0]}
    ratio = (median["awc"] - median["none"]) / (median[DDP] - median["none"])
    yield goal_table([judge("overhead, awc / DDP on gloo", 4, 0.5, ratio, "", least=False)])
    lines = [
        (method, *(f"{1e3 * seconds:.1f}" for seconds in (own, *(run[method] for run in runs))))
        for method, own in median.items()
    ]
    yield table(["ms a step", "median", *(f"run {at + 1}" for at in range(len(runs)))], lines)


def slow(found: Found) -> Iterator[str]:
    methods = by_rate(found)
    best = {method: min(own.values()) for method, own in methods.items()}

    def faster(method: str) -> Goal:
        ratio = min(best[DDP], SLOW_LIMIT) / best[method]
        return judge(f"{DDP} / {method}, best rates", 4, 3, ratio, "x faster", least=True)

    yield goal_table(map(faster, ("win_put", "pairs")))
    yield rate_table(methods, lambda s: f"{s:.2f} s" if math.isfinite(s) else "never")


def epochs(found: Found) -> Iterator[str]:
    goals, lines = [], []
    for n, own in found.items():
        (reference, with_ddp), *others = own.items()
        lines.append((reference, n, f"{100 * with_ddp:.2f}", "-"))
        for method, accuracy in others:
            points = 100 * (accuracy - with_ddp)
            lines.append((method, n, f"{100 * accuracy:.2f}", f"{points:+.2f}"))
            text = f"{method}, beyond DDP"
            goals.append(judge(text, int(n), -0.5, points, "points", least=True))
    yield goal_table(goals)
    yield table(["method", "ranks", "test accuracy, %", "beyond DDP, points"], lines)


def accurate(found: Found) -> Iterator[str]:
    # A method that never gets there needs this time at least.
    slowest = max(row["seconds"] for row in found.values())
    best = {
        method: min(
            (row["seconds"] for row in own.values() if row["accuracy"] >= TARGET), default=math.inf
        )
        for method, own in by_rate(found).items()
    }

    def faster(method: str) -> Goal:
        limit = 10 if "int8" in method else 3
        ratio = min(best[DDP], slowest) / best[method]
        return judge(f"{DDP} / {method}, best rates", 8, limit, ratio, "x faster", least=True)

    yield goal_table(faster(method) for method in best if method != DDP)
    yield rate_table(
        by_rate(found),
        lambda row: f"{row['seconds']:.1f} s, {row['steps']} steps, {row['accuracy']:.1%}",
    )


def scaling(found: Found) -> Iterator[str]:
    times = {
        int(n): {name.removesuffix(" sgd0.1"): seconds for name, seconds in own.items()}
        for n, own in found.items()
    }
    last = max(times)
    ratio = times[last]["none"] / times[last]["awc"]
    text = "steps without communication / with awc"
    yield goal_table([judge(text, last, 0.95, ratio, "", least=True)], of="hosts")
    lines = [
        (
            *(n, *(f"{1e3 * seconds:.1f}" for seconds in own.values())),
            *(f"{own['none'] / own['awc']:.1%}", f"{own['none'] / own[DDP]:.1%}"),
            f"{times[min(times)]['none'] / own['awc']:.1%}",
        )
        for n, own in times.items()
    ]
    head = ["hosts", *(f"{name}, ms a step" for name in times[last])]
    shares = ["none / awc", f"none / {DDP}", f"none on {min(times)} / awc"]
    yield table([*head, *shares], lines, texts=0)


# Each part of training.py has a title, and a function that makes its tables.
PARTS: dict[str, tuple[str, Callable[[Found], Iterator[str]]]] = {
    "exact": ("Error of one-peer averaging of float64 after log2(n) steps", exact),
    "overhead": ("A step of 4 ranks on one host that computes for 20 ms", overhead),
    "slow": ("Time until the loss is 0.2, one rank of 4 five times slower", slow),
    "epochs": ("Test accuracy after 30 epochs, mean of ten seeds", epochs),
    "accurate": ("Time to 95 % accuracy on 8 hosts at 100 Mbit/s", accurate),
    "scaling": ("Steps of 200 ms of computing on 1 to 16 hosts at 1 Gbit/s", scaling),
}


def sections(found: Found) -> Iterator[str]:
    for part, (title, make) in PARTS.items():
        if part in found:
            yield f"## {part}: {title}"
            yield from make(found[part])


TRAINING = Report("Training", sections)
