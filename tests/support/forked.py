"""This module runs a function in a process that is forked from one that has imported torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.harness import Ranks


def in_a_fork(body: Callable[..., Any], *args: Any) -> Any:
    """Run `body` in a process that has imported torch and made no group. It must print nothing."""
    with Ranks(1) as ranks:
        ranks.start(body, *args)
        value = ranks.values(20)[0]
        assert ranks.output(0) == ""
        return value
