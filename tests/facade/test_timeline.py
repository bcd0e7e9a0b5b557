"""bluefog_pg.torch writes a timeline with the activities of operations, and a program's own."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import bluefog_pg._core.timeline
from tests.support import harness, inrank
from tests.support.programs import run_script


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
    """Return the activities of each process in the order in which they end.

    Those that do not end come last, with a "-".
    """
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    stacks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    ended: dict[str, list[str]] = {name: [] for name in names.values()}
    for event in (event for event in events if event["ph"] != "M"):
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
            events = json.loads(at_once + "]")  # The file is not closed yet.
            assert begun_and_ended(events) == {
                "neighbor.allreduce.x": ["ENQUEUE_NEIGHBOR_ALLREDUCE", "MPI_NEIGHBOR_ALLREDUCE"]
            }
        ranks.leave()
        for rank in range(2):
            ended = begun_and_ended(json.loads(Path(f"{prefix}{rank}.json").read_text()))
            unnamed = [name for name in ended if "noname" in name]
            assert len(unnamed) == 2  # allreduce and barrier
            assert ended["neighbor.allgather.x"][1] == "MPI_NEIGHBOR_ALLGATHER"
            assert ended[unnamed[0]] == ["ENQUEUE_ALLREDUCE", "MPI_ALLREDUCE"]
            assert ended["allreduce.bad"] == ["ENQUEUE_ALLREDUCE", "MPI_ALLREDUCE"]
            assert ended["y"] == ["FORWARD", "INNER", "OUTER"]
            assert ended["z"] == ["-OPEN"]


def drawn_windows(rank: int, world: int, prefix: str) -> list[str]:
    """Return what is in the file when each call has returned."""
    import bluefog_pg.torch as bf

    bf.init()
    path, x = Path(f"{prefix}{rank}.json"), torch.ones(2)
    texts = []
    for call in (
        lambda: bf.win_create(x, "w"),
        lambda: bf.win_put(x, name="w"),
        lambda: bf.win_accumulate(x, "w", require_mutex=True),
        lambda: bf.win_wait(bf.win_get_nonblocking("w")),
        lambda: bf.win_update("w"),
        lambda: bf.win_sync_then_collect("w"),
        lambda: bf.win_free("w"),
    ):
        call()
        texts.append(path.read_text())
    return texts


def test_windows_are_drawn(tmp_path: Path) -> None:
    prefix = str(tmp_path / "trace")
    with harness.Ranks(2, env={"BLUEFOG_TIMELINE": prefix}) as ranks:
        ranks.start(drawn_windows, prefix)
        kinds = ("CREATE", "PUT", "ACCUMULATE", "GET", "UPDATE", "UPDATE", "FREE")
        for texts in ranks.values().values():
            for number, text in enumerate(texts):
                ended = begun_and_ended(json.loads(text + "]"))
                assert ended == {
                    "w": [
                        f"{how}_WIN_{kind}"
                        for kind in kinds[: number + 1]
                        for how in ("ENQUEUE", "MPI")
                    ]
                }


def trained(rank: int, world: int, communication: str) -> None:
    """Make one step of a model of two layers, one of which is called twice."""
    import bluefog_pg.torch as bf

    bf.init()
    layer = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(layer, torch.nn.ReLU(), layer, torch.nn.Linear(2, 1, bias=False))
    makers = {
        "win_put": bf.DistributedWinPutOptimizer,
        "win_get": bf.DistributedPullGetOptimizer,
        "gradients": bf.DistributedGradientAllreduceOptimizer,
        "push_sum": bf.DistributedPushSumOptimizer,
        "allreduce": bf.DistributedAllreduceOptimizer,
        "neighbors": bf.DistributedNeighborAllreduceOptimizer,
    }
    optimizer = makers[communication](torch.optim.SGD(model.parameters(), lr=0.1), model)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.close()


@pytest.mark.parametrize(
    ("communication", "activity"),
    [
        ("win_put", "WIN_PUT"),
        ("win_get", "WIN_GET"),
        ("gradients", "ALLREDUCE"),
        ("push_sum", "NEIGHBOR_ALLREDUCE"),
        ("allreduce", "ALLREDUCE"),
        ("neighbors", "NEIGHBOR_ALLREDUCE"),
    ],
)
def test_training_is_drawn(tmp_path: Path, communication: str, activity: str) -> None:
    """Each layer's passes are drawn, and what the optimizer sends, under the name of its bucket."""
    prefix = str(tmp_path / "trace")
    harness.run_ranks(trained, 2, communication, env={"BLUEFOG_TIMELINE": prefix})
    ended = begun_and_ended(json.loads(Path(f"{prefix}0.json").read_text()))
    assert ended["0.weight"] == ended["0.bias"] == ["FORWARD", "FORWARD", "GRADIENT COMPT."]
    assert ended["3.weight"] == ["FORWARD", "GRADIENT COMPT."]
    assert ended["Sequential.0"] == [f"ENQUEUE_{activity}", f"MPI_{activity}"]


def of_named_parameters(rank: int, world: int) -> None:
    """Name parameters as BlueFog's first versions did. The optimizer hears of a model later."""
    import bluefog_pg.torch as bf

    bf.init()
    model = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = bf.DistributedBluefogOptimizer(sgd, model.named_parameters())
    assert optimizer.turn_on_timeline(model) is True
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.close()


def test_a_model_told_of_later_is_drawn(tmp_path: Path) -> None:
    prefix = str(tmp_path / "trace")
    harness.run_ranks(of_named_parameters, 2, env={"BLUEFOG_TIMELINE": prefix})
    ended = begun_and_ended(json.loads(Path(f"{prefix}0.json").read_text()))
    assert ended["weight"] == ended["bias"] == ["FORWARD", "GRADIENT COMPT."]


@pytest.mark.parametrize("start", ["trace", ""])
def test_one_command_merges_the_ranks(tmp_path: Path, start: str) -> None:
    prefix = f"{tmp_path}/{start}"
    harness.run_ranks(trained, 2, "neighbors", env={"BLUEFOG_TIMELINE": prefix})
    command = [sys.executable, "-m", "bluefog_pg", "timeline"]
    assert run_script([*command, prefix]).code == 0
    merged = json.loads(Path(f"{prefix}merged.json").read_text())
    ended = begun_and_ended(merged)
    for rank in range(2):
        mine = begun_and_ended(json.loads(Path(f"{prefix}{rank}.json").read_text()))
        for name, activities in mine.items():
            assert ended[f"rank {rank}: {name}"] == activities
    now = time.time_ns() // 1000
    assert all(now - 60e6 * harness.SLOW < event["ts"] <= now for event in merged)
    none = run_script([*command, str(tmp_path / "other")])
    assert none.code == 1
    assert "there is no file" in none.out


def without_a_folder(rank: int, world: int) -> list[str]:
    import bluefog_pg.torch as bf

    with inrank.logged() as told:
        bf.init()
    assert bf.allreduce(torch.ones(1)).item() == 1.0
    return told


def test_a_folder_that_is_missing_is_told_of(tmp_path: Path) -> None:
    prefix = f"{tmp_path}/none/trace"
    for told in harness.run_ranks(without_a_folder, 2, env={"BLUEFOG_TIMELINE": prefix}):
        assert len(told) == 1
        assert f"BLUEFOG_TIMELINE={prefix}: nothing is drawn" in told[0]


def test_without_a_timeline(caplog: pytest.LogCaptureFixture) -> None:
    import bluefog_pg.torch as bf

    bluefog_pg._core.timeline._complain.cache_clear()
    with caplog.at_level(logging.ERROR, logger="bluefog_pg"):
        assert bf.timeline_start_activity("x", "y") is False
        assert bf.timeline_end_activity("x") is False
        with bf.timeline_context("x", "y"):
            pass
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "BLUEFOG_TIMELINE" in caplog.text
