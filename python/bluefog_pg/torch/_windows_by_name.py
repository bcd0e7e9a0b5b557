"""BlueFog's functions of windows, which know them by their names."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bluefog_pg._core.group_state import member_of
from bluefog_pg.launch.world import rank as rank_of
from bluefog_pg.torch._rank_mutex import mutexes_of
from bluefog_pg.torch._window_lookup import drawn_as, require_neighbors, window_named
from bluefog_pg.torch._window_writes import (
    neighbor_win_accumulate,
    neighbor_win_accumulate_nonblocking,
    neighbor_win_get,
    neighbor_win_get_nonblocking,
    neighbor_win_put,
    neighbor_win_put_nonblocking,
    win_cancel,
    win_poll,
    win_wait,
)
from bluefog_pg.windows import Window
from bluefog_pg.windows._switch import (
    turn_off_win_ops_with_associated_p,
    turn_on_win_ops_with_associated_p,
)

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterable, Mapping

    from torch import Tensor
    from torch.distributed import ProcessGroup

    Group = ProcessGroup | None
    Weights = Mapping[int, float] | None

__all__ = [
    "get_current_created_window_names",
    "get_win_version",
    "neighbor_win_accumulate",
    "neighbor_win_accumulate_nonblocking",
    "neighbor_win_get",
    "neighbor_win_get_nonblocking",
    "neighbor_win_put",
    "neighbor_win_put_nonblocking",
    "turn_off_win_ops_with_associated_p",
    "turn_on_win_ops_with_associated_p",
    "win_accumulate",
    "win_accumulate_async",
    "win_accumulate_nonblocking",
    "win_associated_p",
    "win_cancel",
    "win_create",
    "win_fence",
    "win_free",
    "win_get",
    "win_get_async",
    "win_get_nonblocking",
    "win_lock",
    "win_mutex",
    "win_poll",
    "win_put",
    "win_put_async",
    "win_put_nonblocking",
    "win_read_neighbor",
    "win_sync",
    "win_sync_then_collect",
    "win_update",
    "win_update_then_collect",
    "win_wait",
]

_log = logging.getLogger("bluefog_pg")


@drawn_as("WIN_CREATE")
def win_create(tensor: Tensor, name: str, zero_init: bool = False, group: Group = None) -> bool:
    """Collective: make a window, as `Window`. False where there is one of this name."""
    member = member_of(group)
    if isinstance(name, str) and name in member.windows:
        _log.warning(
            "%s win_create: there is a window %r already, which stays as it is; win_free frees it",
            member.who, name,
        )  # fmt: skip
        return False
    Window(tensor, name, zero_init=zero_init, group=group)
    return True


@drawn_as("WIN_FREE")
def win_free(name: str | None = None, group: Group = None) -> bool:
    """Collective: free the window of that name, or all. True.

    Raises:
        KeyError: there is none of that name.
    """
    windows = member_of(group).windows
    failure: Exception | None = None
    for each in sorted(windows) if name is None else [name]:
        try:
            window_named(each, "win_free", KeyError, group).free()
        except Exception as caught:  # the others are freed all the same
            failure = failure or caught
    if failure:
        raise failure
    return True


def get_current_created_window_names(group: Group = None) -> list[str]:
    """Of the group's windows, sorted."""
    return sorted(member_of(group).windows)


@drawn_as("WIN_UPDATE")
def win_update(
    name: str,
    self_weight: float | None = None,
    neighbor_weights: Weights = None,
    reset: bool = False,
    clone: bool = False,
    require_mutex: bool = False,
    group: Group = None,
) -> Tensor:
    """`Window.update`.

    Raises:
        KeyError: there is no window of that name.
        ValueError: ranks that are no in-neighbours; one of the two weights alone.
    """
    op = "win_update"
    window = window_named(name, op, KeyError, group)
    require_neighbors(
        window, op, "neighbor_weights", neighbor_weights, "in-neighbours", window.sources
    )
    return window.update(
        self_weight=self_weight,
        neighbor_weights=neighbor_weights,
        reset=reset,
        clone=clone,
        require_mutex=require_mutex,
    )


def win_read_neighbor(
    name: str, rank_: int, require_mutex: bool = True, group: Group = None
) -> Tensor:
    """A copy of the slot of one in-neighbour, which stays as it is, with its version.

    Raises:
        KeyError: there is no window of that name.
        ValueError: that is no in-neighbour.
    """
    window = window_named(name, "win_read_neighbor", KeyError, group)
    require_neighbors(
        window, "win_read_neighbor", "rank_", [rank_], "in-neighbours", window.sources
    )
    return window.read(rank_, require_mutex=require_mutex)


@drawn_as("WIN_UPDATE")
def win_update_then_collect(name: str, require_mutex: bool = True, group: Group = None) -> Tensor:
    """`Window.update_then_collect`. KeyError where there is no window of that name."""
    window = window_named(name, "win_update_then_collect", KeyError, group)
    return window.update_then_collect(require_mutex=require_mutex)


def get_win_version(name: str, group: Group = None) -> dict[int, int]:
    """`Window.versions`. ValueError where there is no window of that name."""
    return window_named(name, "get_win_version", ValueError, group).versions()


def win_associated_p(name: str, group: Group = None) -> float:
    """This rank's p. ValueError where there is no window of that name."""
    return window_named(name, "win_associated_p", ValueError, group).associated_p


def win_mutex(
    name: str | Iterable[int] | None = None,
    for_self: bool = False,
    ranks: Iterable[int] | None = None,
    exclusive: bool = True,
    *,
    group: Group = None,
) -> contextlib.AbstractContextManager[None]:
    """`Window.mutex` of the window of that name; or, without a name, mutexes of ranks.

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
        window = window_named(name, "win_mutex", ValueError, group)
        return window.mutex(for_self=for_self, ranks=ranks)
    named = ranks if name is None else name
    return mutexes_of([rank_of(group)] if named is None and for_self else named, group)


def win_lock(name: str, group: Group = None) -> contextlib.AbstractContextManager[None]:
    """The mutexes of all slots of this rank. ValueError where there is no such window."""
    return window_named(name, "win_lock", ValueError, group).mutex(for_self=True)


def win_fence(name: str, group: Group = None) -> bool:
    """Collective: what any rank has put before is in its place when the call returns. True."""
    window_named(name, "win_fence", ValueError, group).fence()
    return True


# The shorter names are BlueFog's, too; the others are of its first versions.
win_put = neighbor_win_put
win_put_nonblocking = win_put_async = neighbor_win_put_nonblocking
win_accumulate = neighbor_win_accumulate
win_accumulate_nonblocking = win_accumulate_async = neighbor_win_accumulate_nonblocking
win_get = neighbor_win_get
win_get_nonblocking = win_get_async = neighbor_win_get_nonblocking
win_sync = win_update
win_sync_then_collect = win_update_then_collect
