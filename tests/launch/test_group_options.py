"""init_process_group takes pg_options and timeouts for bluefog."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import bluefog_pg
from tests.support import inrank
from tests.support.forked import in_a_fork


def init(**given: Any) -> None:
    store = dist.HashStore()
    dist.init_process_group("bluefog", store=store, rank=0, world_size=1, **given)


def gives_options_of_gloo(_rank: int, _world: int) -> None:
    error = inrank.catch(init, pg_options=dist.ProcessGroupGloo._Options())
    needed = "must be bluefog_pg.ProcessGroupBluefog.Options or None, not torch"
    assert error and "TypeError" in error.kinds and needed in error.text, error


def test_options_of_another_backend_are_refused() -> None:
    in_a_fork(gives_options_of_gloo)


def gives_timeouts(_rank: int, _world: int, in_options: int | None, in_call: int | None) -> float:
    options = bluefog_pg.ProcessGroupBluefog.Options()
    if in_options:
        options._timeout = timedelta(seconds=in_options)
    init(pg_options=options, timeout=in_call and timedelta(seconds=in_call))
    made = dist.group.WORLD._get_backend(torch.device("cpu")).options
    assert made.global_ranks_in_group == [0], made.global_ranks_in_group
    assert made is not options
    dist.destroy_process_group()
    return made._timeout.total_seconds()


def gives_seconds(_rank: int, _world: int) -> float:
    import bluefog_pg.torch as bf

    bf.init(timeout=7)
    made = dist.group.WORLD._get_backend(torch.device("cpu")).options
    bf.shutdown()
    return float(made._timeout.total_seconds())


def test_timeout_of_init_in_seconds() -> None:
    assert in_a_fork(gives_seconds) == 7.0


@pytest.mark.parametrize(
    ("in_options", "in_call", "expected"),
    [(None, None, 1800), (None, 7, 7), (5, None, 5), (5, 7, 7)],
)
def test_timeout_of_the_call_wins_over_the_options(
    in_options: int | None, in_call: int | None, expected: int
) -> None:
    assert in_a_fork(gives_timeouts, in_options, in_call) == expected
