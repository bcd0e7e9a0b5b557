"""Tables, the plot and the goals of what collectives.py measured.

As a program: print the tables and draw the plot again from a JSON file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
KIB, MIB = 1 << 10, 1 << 20
COLOURS = {
    "bluefog": "tab:blue",
    "gloo": "tab:orange",
    "mpi": "tab:green",
    "raw_mpi": "tab:red",
    "nccl": "tab:green",
    "fake": "tab:gray",
    "torch.add": "tab:gray",
    "memcpy": "black",
    "wire": "black",
}


def size_text(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def heading(op: str, ranks: int) -> str:
    columns = f"{'size':>10} {'count':>10} {'type':>8} {'peer':>9} {'time':>11} {'least':>11}"
    units = f"{'(B)':>10} {'(elements)':>10} {'':>8} {'':>9} {'(us)':>11} {'(us)':>11}"
    return (
        f"\n{op}, {ranks} ranks\n{columns} {'algbw':>8} {'busbw':>8} {'#wrong':>7}\n"
        f"{units} {'(GB/s)':>8} {'(GB/s)':>8} {'':>7}"
    )


def least_us(row: Row) -> float:
    """Of all turns: what others on the machine disturbed least."""
    return min(row["rounds_us"])


def line(row: Row) -> str:
    alg, bus = ("-" if row[k] is None else f"{row[k]:.2f}" for k in ("algbw", "busbw"))
    wrong = "-" if row["wrong"] is None else row["wrong"]
    return (
        f"{row['size']:>10} {row['count']:>10} {row['type']:>8} {row['peer']:>9} "
        f"{row['time_us']:>11.2f} {least_us(row):>11.2f} {alg:>8} {bus:>8} {wrong:>7}"
    )


@dataclass
class Goal:
    text: str
    ranks: int
    limit: str
    found: str
    verdict: str  # reached, missed, not measured


def judge(text: str, ranks: int, limit: float, found: float | None, unit: str, least: bool) -> Goal:
    sign = "≥" if least else "≤"
    if found is None:
        return Goal(text, ranks, f"{sign} {limit:g} {unit}", "-", "not measured")
    good = found >= limit if least else found <= limit
    verdict = "reached" if good else "missed"
    return Goal(text, ranks, f"{sign} {limit:g} {unit}", f"{found:.3g} {unit}", verdict)


def ratios(
    rows: Iterable[Row], ranks: int, over: str, under: str, wanted: Callable[[Row], bool]
) -> list[float]:
    """time of `over` / time of `under`, for each operation and size that both were timed at."""
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
    """The worst of all sizes and operations that a goal speaks of."""
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


def goal_table(all_goals: list[Goal], of: str) -> str:
    wide = max([20, *(len(g.found) for g in all_goals)])
    lines = [f"\n{'goal':<50} {of:>5}  {'limit':<18} {'found':<{wide}} verdict"]
    lines += [
        f"{g.text:<50} {g.ranks:>5}  {g.limit:<18} {g.found:<{wide}} {g.verdict}" for g in all_goals
    ]
    return "\n".join(lines)


def tables(rows: list[Row]) -> str:
    said, last = [], None
    for row in rows:
        if (row["op"], row["ranks"]) != last:
            last = (row["op"], row["ranks"])
            said.append(heading(*last))
        said.append(line(row))
    return "\n".join(said)


def plot(rows: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    ops = list(dict.fromkeys(row["op"] for row in rows))
    ranks = sorted({row["ranks"] for row in rows})
    figure = Figure(figsize=(5.2 * len(ranks), 2.7 * len(ops) + 0.6), layout="constrained")
    grid = figure.subplots(len(ops), len(ranks), sharex=True, sharey="row", squeeze=False)
    for op, line_of_axes in zip(ops, grid, strict=True):
        for n, axes in zip(ranks, line_of_axes, strict=True):
            for peer, colour in COLOURS.items():
                own = [r for r in rows if (r["op"], r["ranks"], r["peer"]) == (op, n, peer)]
                if own:
                    xs, ys = [r["size"] for r in own], [r["time_us"] for r in own]
                    axes.plot(xs, ys, color=colour, marker=".", label=peer)
            axes.set(title=f"{op}, {n} ranks", xscale="log", yscale="log")
            axes.set_xscale("log", base=4)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(round(size))))
            axes.tick_params(axis="x", labelsize=7)
            axes.grid(alpha=0.3)
        line_of_axes[0].set_ylabel("time of a call, us")
    for axes in grid[-1]:
        axes.set_xlabel("size")
    lines = {drawn.get_label(): drawn for axes in grid.flat for drawn in axes.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=5, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


@dataclass
class Report:
    """What becomes of the measurements of one program."""

    goals: Callable[[dict[str, Any]], list[Goal]]
    tables: Callable[[list[Row]], str]
    plot: Callable[[list[Row], Path], None]
    of: str = "ranks"  # what the goals count
    more: Callable[[dict[str, Any]], str] = lambda _: ""  # tables of what is not in the rows

    def write(self, found: dict[str, Any], path: Path) -> None:
        """JSON at `path`, the plot beside it, further tables and the goals on stdout."""
        all_goals = self.goals(found)
        found["goals"] = [asdict(goal) for goal in all_goals]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        self.plot(found["rows"], path.with_suffix(".png"))
        if tables := self.more(found):
            print(tables)
        if all_goals:
            print(goal_table(all_goals, self.of))
        print(f"\n{path}\n{path.with_suffix('.png')}")

    def show_again(self, path: Path) -> None:
        stored = json.loads(path.read_text())
        print(self.tables(stored["rows"]))
        self.write(stored, path)


COLLECTIVES = Report(goals, tables, plot)

if __name__ == "__main__":
    COLLECTIVES.show_again(Path(sys.argv[1]))
