"""Groups are made in stores that earlier groups and processes have used."""

from __future__ import annotations

import random
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support import harness, inrank
from tests.support.harness import SLOW, Ranks, free_port
from tests.support.programs import TORCHRUN, finish_script, start_script

SCRIPT = Path(__file__).parents[1] / "support" / "scripts" / "restarted.py"


class Least(dist.Store):
    """A Least is a Store with set, get and wait alone."""

    def __init__(self, inner: dist.Store) -> None:
        super().__init__()
        self.inner = inner

    def set(self, key: str, value: Any) -> None:
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=20)) -> None:
        self.inner.wait(keys, timeout)


def stored(rank: int, world: int) -> float:
    store = Least(dist.FileStore(str(inrank.directory() / "least"), world))
    dist.init_process_group("bluefog", store=store, rank=rank, world_size=world)
    x = torch.full((3,), float(rank))
    dist.all_reduce(x)
    dist.destroy_process_group()
    return float(x[0])


def test_a_store_written_in_python_with_three_methods() -> None:
    assert harness.run_ranks(stored, 3, world=0) == [3.0] * 3


def tries(rank: int, world: int, seed: int) -> list[str]:
    """Try to make a group until it works, and return the errors. Rank 2 begins late."""
    chance = random.Random(10 * seed + rank)
    if rank == 2:
        inrank.gate("late")
    told: list[str] = []
    while not dist.is_initialized():
        limit = chance.uniform(0.2, 0.4) * SLOW
        error = inrank.catch(inrank.init, "tried", rank, world, limit)
        told += [error.text] if error else []
        if len(told) == 3:
            inrank.mark("tried")
    inrank.meet("in", world)
    dist.destroy_process_group()
    return told


@pytest.mark.parametrize("seed", range(3))
def test_ranks_that_try_again_meet_at_last(seed: int) -> None:
    """Nobody dies: each error says that a rank is missing, or has given up."""
    with Ranks(3) as ranks:
        ranks.start(tries, seed)
        ranks.at("tried", 0, 1)
        ranks.open("late")
        for told in ranks.values(60).values():
            for text in told:
                assert re.search("nothing from rank|given up|passed the group's memory", text), text


@pytest.mark.slow
def test_agents_that_count_their_restarts_differently(tmp_path: Path) -> None:
    """A worker of one agent dies, and that agent alone counts a restart."""
    command = [*TORCHRUN, "--nnodes=2", "--nproc-per-node=2", "--max-restarts=3"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
    agents = [start_script([*command, str(SCRIPT), str(tmp_path)]) for _ in range(2)]
    told = [finish_script(agent, 120) for agent in agents]
    assert [t.code for t in told] == [0, 0], told[0].out + told[1].out
    ends = re.findall(r"rank (\d) of 4 is done after (\d) restarts", told[0].out + told[1].out)
    assert sorted(rank for rank, _ in ends) == ["0", "1", "2", "3"], ends
    assert sorted(restarts for _, restarts in ends) == ["0", "0", "1", "1"], ends
