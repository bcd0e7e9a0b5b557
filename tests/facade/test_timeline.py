"""The timeline that bluefog_pg.torch writes: activities of operations, and a program's own."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import bluefog_pg.timeline
from tests.support import harness, inrank


def traced(rank: int, world: int, prefix: str) -> list[Any]:
    import bluefog_pg.torch as bf

    bf.init()
    path = Path(f"{prefix}{rank}.json")
    x = torch.ones(10, 10)
    bf.neighbor_allreduce(x, name="x")
    at_once = path.read_text()
    bf.neighbor_allgather(x, name="x")
    bf.synchronize(bf.allreduce_nonblocking(x))
    inrank.catch(bf.allreduce, [], name="bad")
    told = [bf.timeline_start_activity("y", "FORWARD"), bf.timeline_end_activity("y")]
    told.append(bf.timeline_end_activity("y"))
    with bf.timeline_context("y", "OUTER"), bf.timeline_context("y", "INNER"):
        inrank.in_threads(1, lambda _: bf.barrier() or bf.timeline_start_activity("z", "OPEN"))
    return [at_once, told]


def begun_and_ended(events: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The activities of each process, in the order they end, "-" for what does not."""
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    stacks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    ended: dict[str, list[str]] = {name: [] for name in names.values()}
    for event in events:
        stack = stacks.setdefault((event["pid"], event["tid"]), [])
        if event["ph"] == "B":
            stack.append(event)
        elif event["ph"] == "E":
            began = stack.pop()
            assert began["ts"] <= event["ts"]
            ended[names[event["pid"]]].append(began["name"])
    for (process, _), stack in stacks.items():
        ended[names[process]] += [f"-{event['name']}" for event in stack]
    return ended


def test_timeline(tmp_path: Path) -> None:
    prefix = str(tmp_path / "trace")
    with harness.Ranks(2, env={"BLUEFOG_TIMELINE": prefix}) as ranks:
        ranks.start(traced, prefix)
        for at_once, told in ranks.values().values():
            assert told == [True, True, False]
            events = json.loads(at_once + "]")  # not closed yet
            assert begun_and_ended(events) == {
                "neighbor.allreduce.x": ["ENQUEUE_NEIGHBOR_ALLREDUCE", "MPI_NEIGHBOR_ALLREDUCE"]
            }
        ranks.leave()
        for rank in range(2):
            ended = begun_and_ended(json.loads(Path(f"{prefix}{rank}.json").read_text()))
            unnamed = [name for name in ended if "noname" in name]
            assert len(unnamed) == 2  # allreduce, barrier
            assert ended["neighbor.allgather.x"][1] == "MPI_NEIGHBOR_ALLGATHER"
            assert ended[unnamed[0]] == ["ENQUEUE_ALLREDUCE", "MPI_ALLREDUCE"]
            assert ended["allreduce.bad"] == ["ENQUEUE_ALLREDUCE", "MPI_ALLREDUCE"]
            assert ended["y"] == ["FORWARD", "INNER", "OUTER"]
            assert ended["z"] == ["-OPEN"]


def test_without_a_timeline(caplog: pytest.LogCaptureFixture) -> None:
    import bluefog_pg.torch as bf

    bluefog_pg.timeline._complain.cache_clear()
    with caplog.at_level(logging.ERROR, logger="bluefog_pg"):
        assert bf.timeline_start_activity("x", "y") is False
        assert bf.timeline_end_activity("x") is False
        with bf.timeline_context("x", "y"):
            pass
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "BLUEFOG_TIMELINE" in caplog.text
