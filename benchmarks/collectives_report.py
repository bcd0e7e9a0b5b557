"""This module makes the goals and tables of what collectives.py measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from figures import (
    KIB,
    MIB,
    Goal,
    Report,
    Row,
    goal_table,
    grouped,
    judge,
    plot,
    table,
    time_text,
    times_table,
)


def ratios(
    rows: Iterable[Row], ranks: int, over: str, under: str, wanted: Callable[[Row], bool]
) -> list[float]:
    """Return time of `over` / time of `under` for each operation and size where both are timed."""
    times: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        if row["ranks"] == ranks and wanted(row):
            times.setdefault((row["op"], row["size"]), {})[row["peer"]] = row["time_us"]
    return [t[over] / t[under] for t in times.values() if over in t and under in t]


MORE = ("reduce", "gather", "scatter", "all_to_all", "all_reduce_coalesced")


def small(row: Row) -> bool:
    return row["op"] == "all_reduce" and row["size"] <= 4 * KIB


def large(row: Row) -> bool:
    return row["op"] == "all_reduce" and row["size"] in (4 * MIB, 64 * MIB)


def small_more(row: Row) -> bool:
    return row["op"] in MORE and row["size"] <= 4 * KIB


def large_more(row: Row) -> bool:
    return row["op"] in MORE and row["size"] == 4 * MIB


def large_neighbor(row: Row) -> bool:
    return row["op"].startswith("neighbor") and row["size"] in (4 * MIB, 64 * MIB)


STEPS = {
    "digits_ddp": "DDP step of train_digits",
    "large_ddp": "DDP step of 25 M parameters",
    "large_fsdp2": "FSDP2 step of 25 M parameters",
}


def goals(found: dict[str, Any]) -> list[Goal]:
    """Judge each goal by the worst of all sizes and operations that it speaks of."""
    rows, all_goals = found["rows"], list[Goal]()
    if any(row["peer"] == "nccl" for row in rows):
        return [
            judge("every operation against NCCL alone", n, 1.02, worst, "x its time", least=False)
            for n in sorted({row["ranks"] for row in rows})
            for worst in [max(ratios(rows, n, "bluefog", "nccl", lambda _: True), default=None)]
        ]
    for n in sorted({row["ranks"] for row in rows} | set(map(int, found["probes"]))):
        probe = found["probes"].get(str(n), {})
        steps = probe.get("step_ratio", {})

        def faster(
            text: str, goal: float, over: str, wanted: Callable[[Row], bool], n: int = n
        ) -> Goal:
            worst = min(ratios(rows, n, over, "bluefog", wanted), default=None)
            return judge(text, n, goal, worst, "x faster", least=True)

        def most(text: str, limit: float, value: float | None, unit: str, n: int = n) -> Goal:
            return judge(text, n, limit, value, unit, least=False)

        all_goals.append(faster("all_reduce up to 4 KiB against gloo", 10, "gloo", small))
        if n == 2:
            worst = max(ratios(rows, n, "bluefog", "fake", small), default=None)
            text = "all_reduce up to 4 KiB against FakeProcessGroup"
            all_goals.append(most(text, 3, worst, "x its time"))
        all_goals += [
            faster("all_reduce of 4 and 64 MiB against gloo", 4, "gloo", large),
            faster(f"{', '.join(MORE)}, up to 4 KiB", 10, "gloo", small_more),
            faster(f"{', '.join(MORE)}, of 4 MiB", 4, "gloo", large_more),
            faster("neighbor_allreduce of 4 and 64 MiB against MPI", 1.5, "mpi", large_neighbor),
            most("CPU time of an idle engine", 1, probe.get("idle_percent"), "% of a core"),
            most(
                "init_process_group beyond gloo's",
                0.2 if n == 2 else 0.3,
                probe.get("init_beyond_gloo_s"),
                "s",
            ),
            *(
                most(f"{text} against gloo", 1, steps.get(training), "x its time")
                for training, text in STEPS.items()
            ),
        ]
    return all_goals


def starts_and_steps(probes: dict[str, Any]) -> Iterator[str]:
    lines = [
        (
            name,
            n,
            *(
                time_text(1e6 * statistics.median(run[key] for run in runs))
                for key in ("init_s", "first_all_reduce_s")
            ),
            f"{runs[0]['idle_percent']:.3g}",
        )
        for n, probe in probes.items()
        for name, runs in probe["starts"].items()
    ]
    if lines:
        columns = ["init_process_group", "first all_reduce", "idle, % of a core"]
        yield "## Starting and idling"
        yield table(["backend", "ranks", *columns], lines)
    steps = [
        (STEPS[training], n, *(time_text(1e6 * step[peer]) for peer in ("bluefog", "gloo")),
         f"{step['bluefog'] / step['gloo']:.3g}")
        for n, probe in probes.items()
        for training, step in probe.get("step_s", {}).items()
        if len(step) == 2
    ]  # fmt: skip
    if steps:
        yield "## Training steps"
        head = ["step", "ranks", "bluefog", "gloo", "bluefog / gloo"]
        yield table(head, steps)


def sections(found: dict[str, Any]) -> Iterator[str]:
    yield goal_table(goals(found))
    for (op,), rows in grouped(found["rows"], "op").items():
        yield f"## {op}"
        yield times_table(rows, "ranks")
    yield from starts_and_steps(found["probes"])


COLLECTIVES = Report("Collectives on one host", sections, plot)
