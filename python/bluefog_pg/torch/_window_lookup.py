"""This module has what all functions of windows by name share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.timeline import current, drawn

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg.windows import Window

T = TypeVar("T")
P = ParamSpec("P")


def window_named(
    name: str, op: str, error: type[Exception], group: dist.ProcessGroup | None
) -> Window:
    member = member_of(group)
    if not isinstance(name, str):
        raise TypeError(
            f"{member.who} {op}: a window's name must be a string, not a {type(name).__name__}; "
            "where there is a tensor, too, it comes first"
        )
    window: Window | None = member.windows.get(name)
    if window is None:
        raise error(
            f"{member.who} {op}: there is no window {name!r}; there are {sorted(member.windows)}"
        )
    return window


def require_neighbors(
    window: Window, op: str, argument: str, given: Any, which: str, neighbors: list[int]
) -> None:
    if given is None:
        return
    check = window.checker(op)
    check.require_neighbors(
        argument,
        dict(check.pairs(argument, given)),
        which,
        neighbors,
        "; a window keeps the topology that it was made in",
    )


def drawn_as(activity: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Draw a function's calls in the timeline, under the window's name.

    The bar of a nonblocking operation covers the call alone.
    """

    def drawing(function: Callable[P, T]) -> Callable[P, T]:
        place = list(inspect.signature(function).parameters).index("name")

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            if current() is None:
                return function(*args, **kwargs)
            name = args[place] if len(args) > place else kwargs.get("name")
            with drawn(str(name or "all windows"), activity):
                return function(*args, **kwargs)

        return called

    return drawing
