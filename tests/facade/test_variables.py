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


OF_NO_EFFECT = """
    BLUEFOG_ALLREDUCE_BY_MPI BLUEFOG_CYCLE_TIME BLUEFOG_FUSION_THRESHOLD BLUEFOG_LOG_HIDE_TIME
    BLUEFOG_MAX_WIN_SENT_LENGTH BLUEFOG_MPI_THREAD_LEVEL BLUEFOG_NUM_FINALIZER_THREADS
    BLUEFOG_OPS_ON_CPU BLUEFOG_SLEEP_USEC_FOR_WIN_PASSIVE BLUEFOG_WIN_ON_GPU BLUEFOG_WIN_OPS_BY_MPI
    BLUEFOG_WIN_RESTART_RETRIES BLUEFOG_WIN_TIMEOUT_S BLUEFOG_WITH_NCCL
""".split()


def test_a_warning_names_each_once() -> None:
    env = dict.fromkeys(OF_NO_EFFECT, "1") | {"BLUEFOG_LOG_LEVEL": "info"}
    first, second = harness.run_ranks(told, 2, env=env)
    assert first[0] == second[0] == "INFO"
    assert [line.split()[1] for line in first[1:]] == OF_NO_EFFECT
    (timeout,) = (line for line in first[1:] if "BLUEFOG_WIN_TIMEOUT_S" in line)
    assert "use init(timeout=seconds)" in timeout
    assert second[1:] == []
