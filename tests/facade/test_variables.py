"""BlueFog's and Asyncddp's environment variables work, or a warning says what to do instead."""

from __future__ import annotations

import logging

from tests.support import harness, inrank


def told(rank: int, world: int) -> list[str]:
    import bluefog_pg.torch as bf

    with inrank.logged() as lines:
        bf.init()
        bf.init()
    level = logging.getLogger("bluefog_pg").level
    return [logging.getLevelName(level), *lines]


def test_a_warning_names_each_once() -> None:
    env = {"BLUEFOG_CYCLE_TIME": "1", "BLUEFOG_WIN_TIMEOUT_S": "30", "BLUEFOG_LOG_LEVEL": "info"}
    env["BLUEFOG_WITH_NCCL"] = "1"
    first, second = harness.run_ranks(told, 2, env=env)
    assert first[0] == second[0] == "INFO"
    told_of = ("BLUEFOG_CYCLE_TIME", "BLUEFOG_WIN_TIMEOUT_S", "BLUEFOG_WITH_NCCL")
    assert [line.split()[1] for line in first[1:]] == list(told_of)
    assert "use init(timeout=seconds)" in first[2]
    assert second[1:] == []
