"""This module makes the table, the sentences and the picture of what the ranks of demo.py saw."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Seen = dict[str, Any]  # what one rank saw of one training, which it has ended
Curve = list[tuple[float, float]]  # the seconds and the loss of each step


@dataclass
class Row:
    """A Row is one training as the ranks saw it that were neither slow nor killed."""

    title: str
    seconds: float
    megabytes: float
    accuracy: float
    finished: int  # ranks
    losses: Curve  # smoothed, of rank 0

    @property
    def sent(self) -> str:
        return f"{self.megabytes:.1f} MB" if self.megabytes else "-"

    def line(self) -> str:
        cells = f"{self.seconds:5.1f} s  {self.sent:>9}  {self.accuracy:>13.1%}"
        return f"{self.title:<28}  {cells}  {self.finished:>14}"


HEAD = f"{'training':<28}  {'time':>7}  {'sent':>9}  {'test accuracy':>13}  {'ranks finished':>14}"


def leave(path: Path, seen: list[Seen]) -> None:
    """Write a rank's file again, so that a reader finds the old one or the new one."""
    partial = path.with_suffix(".new")
    partial.write_text(json.dumps(seen))
    partial.rename(path)


def read(path: Path) -> list[Seen]:
    return list(json.loads(path.read_text())) if path.exists() else []


def await_runs(paths: list[Path], runs: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while missing := [str(path) for path in paths if len(read(path)) < runs]:
        if time.monotonic() > end:
            raise TimeoutError(f"these files lack trainings after {seconds:g} s: {missing}")
        time.sleep(0.05)


def smooth(losses: Curve, factor: float = 0.9) -> Curve:
    mean, smoothed = losses[0][1], Curve()
    for seconds, loss in losses:
        mean = factor * mean + (1 - factor) * loss
        smoothed.append((seconds, mean))
    return smoothed


def rows(folder: Path, world: int, runs: int) -> list[Row]:
    """Return a row for each training, when all ranks but the killed last one have ended them."""
    paths = [folder / f"rank{rank}.json" for rank in range(world)]
    await_runs(paths[:-1], runs, 60)
    ranks = [read(path) for path in paths]
    return [
        Row(
            title=seen[0]["title"],
            seconds=max(each["seconds"] for each in seen),
            megabytes=max(each["megabytes"] for each in seen),
            accuracy=min(each["accuracy"] for each in seen),
            finished=sum(len(rank) > number for rank in ranks),
            losses=smooth(seen[0]["losses"]),
        )
        for number, seen in enumerate(zip(*ranks[:-1], strict=True))
    ]


def verdict(table: list[Row]) -> list[str]:
    gloo, ddp, one_peer, slow_ddp, slow_put, killed = table
    time, sent = ddp.seconds / gloo.seconds, one_peer.megabytes / ddp.megabytes
    beside_slow = slow_put.seconds / slow_ddp.seconds
    slow = f"Beside a rank that is 5 x slower, win_put took {beside_slow:.2f} of DDP's time, and"
    slow += f" ended at {slow_put.accuracy:.1%} in place of {slow_ddp.accuracy:.1%}."
    return [
        f"DDP on bluefog took {time:.2f} of gloo's time.",
        f"One-peer averaging sent {sent:.2f} of DDP's bytes.",
        slow,
        f"The other {killed.finished} ranks finished when one was killed halfway.",
    ]


def report(folder: Path, world: int, runs: int) -> None:
    table = rows(folder, world, runs)
    print("", HEAD, *(row.line() for row in table), "", *verdict(table), sep="\n")
    print("Each row is the slowest or worst of the ranks that were neither slow nor killed.")
    (folder / "demo.json").write_text(json.dumps([asdict(row) for row in table]))
    draw(table, folder / "demo.png")
    print(f"picture: {folder / 'demo.png'}", flush=True)


def draw(table: list[Row], path: Path) -> None:
    """Draw rank 0's loss over the time, without a slow rank and beside one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, some in ((left, table[:3]), (right, table[3:])):
        for row in some:
            axes.plot(*zip(*row.losses, strict=True), label=row.title)
        axes.set(xlabel="seconds", yscale="log")
        axes.legend()
        axes.grid(which="both", alpha=0.3)
    left.set(title="four ranks of one pace", ylabel="training loss of rank 0")
    right.set(title="one rank is slow, or is killed")
    figure.savefig(path, dpi=120)
