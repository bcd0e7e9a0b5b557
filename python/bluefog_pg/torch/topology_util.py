"""This module has two functions that BlueFog has here, and those of `topology_util`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from bluefog_pg import topology_util
from bluefog_pg.topology_util import *  # noqa: F403 - Programs may look for graphs here, too.
from bluefog_pg.torch._run import handles

__all__ = ["InferDestinationFromSourceRanks", "InferSourceFromDestinationRanks"]

F = TypeVar("F", bound=Callable[..., Any])


def _not_while_suspended(function: F) -> F:
    """Refuse the function while operations are suspended, as all ranks take part in it."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        handles.require_running(function.__name__)
        return function(*args, **kwargs)

    return cast("F", called)


InferDestinationFromSourceRanks = _not_while_suspended(
    topology_util.InferDestinationFromSourceRanks
)
InferSourceFromDestinationRanks = _not_while_suspended(
    topology_util.InferSourceFromDestinationRanks
)
