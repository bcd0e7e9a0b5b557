"""BlueFog's windows, and the names that its first versions had for them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from bluefog_pg._core.timeline import current, drawn
from bluefog_pg.launch.world import rank as rank_of
from bluefog_pg.torch._rank_mutex import mutexes_of
from bluefog_pg.windows import by_name
from bluefog_pg.windows.by_name import *  # noqa: F403

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterable

    import torch.distributed as dist

T = TypeVar("T")
P = ParamSpec("P")


def _drawn(activity: str, function: Callable[P, T]) -> Callable[P, T]:
    """Draw its calls in the timeline, under the window's name.

    The bar of a nonblocking operation covers the call alone.
    """
    place = list(inspect.signature(function).parameters).index("name")

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        if current() is None:
            return function(*args, **kwargs)
        name = args[place] if len(args) > place else kwargs.get("name")
        with drawn(str(name or "all windows"), activity):
            return function(*args, **kwargs)

    return called


def win_mutex(  # type: ignore[no-redef]  # takes ranks, too
    name: str | Iterable[int] | None = None,
    for_self: bool = False,
    ranks: Iterable[int] | None = None,
    exclusive: bool = True,
    *,
    group: dist.ProcessGroup | None = None,
) -> contextlib.AbstractContextManager[None]:
    """`bluefog_pg.win_mutex`; or, without a window's name, mutexes of ranks.

    Those exclude other blocks of that form alone: no operation takes them.

    Args:
        name: the window's; or ranks, in its place, or None, as in BlueFog before 0.2.2.
        for_self, ranks: as of `Window.mutex`; without a window, None are the out-neighbors, or
            this rank itself.
        exclusive: of no effect; BlueFog 0.2.1 has it.
        group: the process group; None, the default one.

    Raises:
        ValueError: there is no window of that name; ranks that are none.
        RuntimeError: this thread holds one of them already.
        CollectiveTimeout: somebody else held one for longer than the group's timeout.
    """
    del exclusive
    if isinstance(name, str):
        return by_name.win_mutex(name, for_self, ranks, group)
    named = ranks if name is None else name
    return mutexes_of([rank_of(group)] if named is None and for_self else named, group)


win_create = _drawn("WIN_CREATE", by_name.win_create)
win_free = _drawn("WIN_FREE", by_name.win_free)
win_put = neighbor_win_put = _drawn("WIN_PUT", by_name.win_put)
win_put_nonblocking = neighbor_win_put_nonblocking = win_put_async = _drawn(
    "WIN_PUT", by_name.win_put_nonblocking
)
win_accumulate = neighbor_win_accumulate = _drawn("WIN_ACCUMULATE", by_name.win_accumulate)
win_accumulate_nonblocking = neighbor_win_accumulate_nonblocking = win_accumulate_async = _drawn(
    "WIN_ACCUMULATE", by_name.win_accumulate_nonblocking
)
win_get = neighbor_win_get = _drawn("WIN_GET", by_name.win_get)
win_get_nonblocking = neighbor_win_get_nonblocking = win_get_async = _drawn(
    "WIN_GET", by_name.win_get_nonblocking
)
win_update = win_sync = _drawn("WIN_UPDATE", by_name.win_update)
win_update_then_collect = win_sync_then_collect = _drawn(
    "WIN_UPDATE", by_name.win_update_then_collect
)

__all__ = [
    "win_accumulate_async",
    "win_get_async",
    "win_put_async",
    "win_sync",
    "win_sync_then_collect",
]
__all__ += by_name.__all__
