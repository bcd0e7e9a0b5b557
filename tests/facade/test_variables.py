"""BlueFog's and Asyncddp's environment variables work, or a warning says what to do instead."""

from __future__ import annotations

from tests.support import harness


def told(rank: int, world: int) -> list[str]:
    import logging

    import bluefog_pg.torch as bf

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("bluefog_pg")
    log.addHandler(handler)
    bf.init()
    bf.init()
    return [logging.getLevelName(log.level), *lines]


def test_a_warning_names_each_once() -> None:
    env = {"BLUEFOG_CYCLE_TIME": "1", "BLUEFOG_WIN_TIMEOUT_S": "30", "BLUEFOG_LOG_LEVEL": "info"}
    first, second = harness.run_ranks(told, 2, env=env)
    assert first[0] == second[0] == "INFO"
    told_of = ("BLUEFOG_CYCLE_TIME", "BLUEFOG_WIN_TIMEOUT_S")
    assert [line.split()[1] for line in first[1:]] == list(told_of)
    assert "use init(timeout=seconds)" in first[2]
    assert second[1:] == []
