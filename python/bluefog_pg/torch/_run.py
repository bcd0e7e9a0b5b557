"""This module runs each operation of this package.

Only one operation of a name may be under way. Operations are refused while they are suspended, and
the timeline shows them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from bluefog_pg._core import timeline
from bluefog_pg._core.handles import Handles
from bluefog_pg._core.timeline import drawn

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg._core.handles import Started

T = TypeVar("T")

handles = Handles()
_numbers = itertools.count(1)


def waited_for(op: str, name: str | None, call: Callable[[], T]) -> T:
    """Return the result of an operation that its caller waits for.

    Args:
        op: the operation, such as "neighbor.allreduce".
        name: its name, or None; only one of a name may be under way.
        call: does the operation.

    Raises:
        ValueError: one is under way, or operations are suspended.
    """
    handles.require_running(op)
    with handles.reserved(_key(op, name)), drawn(_title(op, name), _activity(op)):
        return call()


def issued(op: str, name: str | None, start: Callable[[], Started]) -> int:
    """Return the handle of an operation that `start` starts.

    Raises:
        The errors of `waited_for`.
    """
    handles.require_running(op)
    if timeline.current() is not None:
        start = functools.partial(_drawn_until_done, op, name, start)
    return handles.issue(_key(op, name), start)


def of_work(work: dist.Work) -> Started:
    """Return the work, and what gives its only result."""
    return work, lambda: work.result()[0]


def one_name(op: str, by_position: str, name: str | None) -> str:
    """Return the name that earlier versions of BlueFog have in another position.

    Raises:
        TypeError: there is a name in its present position, too.
    """
    if name is not None:
        raise TypeError(f"[bluefog] {op}: two names, {by_position!r} and {name!r}")
    return by_position


def _key(op: str, name: str | None) -> str | None:
    if not isinstance(name, str | None):
        raise TypeError(f"[bluefog] {op}: name must be a str, not {type(name).__name__}")
    return None if name is None else f"{op}.{name}"


def _title(op: str, name: str | None) -> str:
    """Return a unique title, as operations that overlap cannot be drawn in one row."""
    return _key(op, name) or f"{op}.noname.{next(_numbers)}"


def _activity(op: str) -> str:
    return op.replace(".", "_").upper()


def _drawn_until_done(op: str, name: str | None, start: Callable[[], Started]) -> Started:
    line = timeline.current()
    assert line is not None  # noqa: S101
    title = _title(op, name)
    work, result = timeline.issued(line, title, _activity(op), start)

    def ended(_: object) -> None:
        line.end(title)

    work.get_future().add_done_callback(ended)
    return work, result
