"""The flight log says what a group has done, and torch's own analyzer reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.programs import run_script


def some_calls(rank: int, world: int, folder: str) -> dict[str, Any]:
    import bluefog_pg

    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(3, 2))
    dist.broadcast(torch.ones(5, dtype=torch.int64), 1)
    dist.barrier()
    if rank < 2:
        dist.all_gather([torch.ones(2) for _ in range(2)], torch.ones(2), group=group)
        if rank == 0:
            dist.send(torch.ones(4), 1, group=group)
        else:
            dist.recv(torch.ones(4), 0, group=group)
    bluefog_pg.neighbor_allreduce(torch.ones(3))
    bluefog_pg.write_flight_log(f"{folder}/rank_")
    log = bluefog_pg.flight_log()
    if group != dist.GroupMember.NON_GROUP_MEMBER:
        dist.destroy_process_group(group)
    return log


@pytest.mark.slow
def test_says_what_was_called_and_the_analyzer_reads_it(tmp_path: Path) -> None:
    logs = harness.run_ranks(some_calls, 3, str(tmp_path))
    entries = logs[0]["entries"]
    of_world = [e for e in entries if e["process_group"][0] == "0"]
    assert [e["profiling_name"] for e in of_world] == [
        "bluefog:all_reduce", "bluefog:broadcast", "bluefog:barrier", "bluefog:neighbor_allreduce",
    ]  # fmt: skip
    first = of_world[0]
    assert first["input_sizes"] == [[3, 2]]
    assert first["input_dtypes"] == ["Float"]
    assert first["state"] == "completed"
    assert first["duration_ms"] >= 0
    assert [e["collective_seq_id"] for e in of_world] == [1, 2, 3, 0]
    sent = next(e for e in entries if e["profiling_name"] == "bluefog:send")
    assert sent["is_p2p"]
    assert sent["partners"] == [1]
    assert len(logs[0]["pg_config"]) == 2
    analyzer = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
    ran = run_script([*analyzer, "--prefix", "rank_", str(tmp_path)], timeout=120)
    assert ran.code == 0, ran.out
    assert "rror" not in ran.out, ran.out


def last_ones(rank: int, world: int) -> tuple[int, int, list[float], str]:
    import bluefog_pg

    for _ in range(1100):
        dist.all_reduce(torch.ones(1))
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert work is not None
    work.wait()
    numbers = [e["record_id"] for e in bluefog_pg.flight_log()["entries"]]
    assert numbers == sorted(numbers)
    late = dist.irecv(torch.ones(1), (rank + 1) % world, tag=3)
    state = bluefog_pg.flight_log()["entries"][-1]["state"]
    early = inrank.catch(lambda: late._get_duration())
    assert early is not None
    dist.barrier()
    dist.isend(torch.ones(1), (rank - 1) % world, tag=3).wait()
    late.wait()
    return len(numbers), numbers[-1], [work._get_duration()], state


def test_keeps_the_last_ones(pool: harness.Pool) -> None:
    for kept, last, durations, state in pool.run(last_ones, world=2):
        assert kept == 1024
        assert last == 1101
        assert durations[0] > 0
        assert state == "scheduled"
