"""This module has BlueFog's functions of windows, which know windows by their names."""

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
    """Make a window, as `Window` does. Collective. BlueFog has this function.

    Args:
        tensor, name, zero_init, group: as in `Window`.

    Returns:
        True; or False where there is a window of this name, which stays as it is.

    Raises:
        The errors of `Window`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.ones(2), "w"), bf.win_create(torch.ones(2), "w")
        (True, False)
        >>> bf.win_free("w")
        True
    """
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
    """Free the window of that name, or all windows of the group. Collective.

    Args:
        name: the window's name; None, all windows.
        group: the process group; None, the default one.

    Returns:
        True.

    Raises:
        KeyError: there is no window of that name.
        Others as `Window.free`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.ones(2), "w")
        True
        >>> bf.win_free()
        True
        >>> bf.get_current_created_window_names()
        []
    """
    windows = member_of(group).windows
    failure: Exception | None = None
    for each in sorted(windows) if name is None else [name]:
        try:
            window_named(each, "win_free", KeyError, group).free()
        except Exception as caught:  # The other windows are freed all the same.
            failure = failure or caught
    if failure:
        raise failure
    return True


def get_current_created_window_names(group: Group = None) -> list[str]:
    """Return the names of the group's windows, sorted. BlueFog has this function.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.ones(2), "w") and bf.win_create(torch.ones(2), "v")
        True
        >>> bf.get_current_created_window_names()
        ['v', 'w']
        >>> bf.win_free()
        True
    """
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
    """Average the window's tensor with its slots, as `Window.update`. BlueFog has this function.

    Args:
        name: the window's name.
        self_weight, neighbor_weights, reset, clone, require_mutex: as in `Window.update`.
        group: the process group; None, the default one.

    Returns:
        The window's tensor, or the new one.

    Raises:
        KeyError: there is no window of that name.
        ValueError: ranks that are no in-neighbors; one of the two weights alone.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.win_create(x, "w")
        True
        >>> for _ in range(30):
        ...     _ = bf.win_put(x, "w") and bf.win_fence("w")
        ...     _ = bf.win_update("w")
        ...     _ = bf.win_fence("w")
        >>> [round(number, 3) for number in x.tolist()]
        [1.5, 1.5]
        >>> bf.win_free("w")
        True
    """
    op = "win_update"
    window = window_named(name, op, KeyError, group)
    require_neighbors(
        window, op, "neighbor_weights", neighbor_weights, "in-neighbors", window.sources
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
    """Return a copy of the slot of one in-neighbor, which stays as it is, with its version.

    Args:
        name: the window's name.
        rank_: the in-neighbor.
        require_mutex: read while nobody else holds the slot's mutex.
        group: the process group; None, the default one.

    Raises:
        KeyError: there is no window of that name.
        ValueError: the rank is no in-neighbor.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.zeros(2), "w")
        True
        >>> bf.win_put(torch.full((2,), float(bf.rank())), "w") and bf.win_fence("w")
        True
        >>> source = bf.in_neighbor_ranks()[0]
        >>> bf.win_read_neighbor("w", source).tolist() == [source] * 2
        True
        >>> bf.win_free("w")
        True
    """
    window = window_named(name, "win_read_neighbor", KeyError, group)
    require_neighbors(window, "win_read_neighbor", "rank_", [rank_], "in-neighbors", window.sources)
    return window.read(rank_, require_mutex=require_mutex)


@drawn_as("WIN_UPDATE")
def win_update_then_collect(name: str, require_mutex: bool = True, group: Group = None) -> Tensor:
    """Add the slots to the window's tensor, once, as `Window.update_then_collect`.

    BlueFog has this function.

    Args:
        name: the window's name.
        require_mutex: update while nobody else holds the mutexes of the slots.
        group: the process group; None, the default one.

    Returns:
        The window's tensor.

    Raises:
        KeyError: there is no window of that name.
        CollectiveTimeout: as in `Window.put`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.ones(2), "w", zero_init=True)
        True
        >>> bf.win_put(torch.ones(2), "w") and bf.win_fence("w")
        True
        >>> bf.win_update_then_collect("w").tolist()  # its own, and one from each of two sources
        [3.0, 3.0]
        >>> bf.win_free("w")
        True
    """
    window = window_named(name, "win_update_then_collect", KeyError, group)
    return window.update_then_collect(require_mutex=require_mutex)


def get_win_version(name: str, group: Group = None) -> dict[int, int]:
    """Return {source: changes of its slot since this rank's last update}, as `Window.versions`.

    BlueFog has this function.

    Raises:
        ValueError: there is no window of that name.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.ones(2), "w")
        True
        >>> bf.win_put(torch.ones(2), "w") and bf.win_fence("w")
        True
        >>> bf.get_win_version("w") == dict.fromkeys(bf.in_neighbor_ranks(), 1)
        True
        >>> bf.win_free("w")
        True
    """
    return window_named(name, "get_win_version", ValueError, group).versions()


def win_associated_p(name: str, group: Group = None) -> float:
    """Return this rank's p, a float64 (see `turn_on_win_ops_with_associated_p`).

    BlueFog has this function.

    Raises:
        ValueError: there is no window of that name.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.ones(2), "w")
        True
        >>> bf.win_associated_p("w")
        1.0
        >>> bf.win_free("w")
        True
    """
    return window_named(name, "win_associated_p", ValueError, group).associated_p


def win_mutex(
    name: str | Iterable[int] | None = None,
    for_self: bool = False,
    ranks: Iterable[int] | None = None,
    exclusive: bool = True,
    *,
    group: Group = None,
) -> contextlib.AbstractContextManager[None]:
    """Hold a window's mutexes for a block, as `bluefog_pg.Window.mutex`; or mutexes of ranks.

    Without a window's name it takes one mutex for each rank. These exclude other blocks of that
    form alone: no operation takes them.

    Args:
        name: the window's name; or ranks, in its place, or None, as in BlueFog before 0.2.2.
        for_self, ranks: as in `Window.mutex`; without a window, None stands for the out-neighbors,
            or this rank itself.
        exclusive: has no effect; BlueFog 0.2.1 has it.
        group: the process group; None, the default one.

    Raises:
        ValueError: there is no window of that name; ranks that are none.
        RuntimeError: this thread holds one of them already.
        CollectiveTimeout: somebody else held one for longer than the group's timeout.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> with bf.win_mutex(ranks=[0]):  # One rank at a time is here.
        ...     pass
        >>> bf.win_create(torch.ones(2), "w")
        True
        >>> with bf.win_mutex("w"):
        ...     _ = bf.win_put(torch.ones(2), "w")
        >>> bf.win_fence("w") and bf.win_free("w")
        True
    """
    if not isinstance(exclusive, bool):
        raise TypeError(f"[bluefog] win_mutex: exclusive={exclusive!r}; pass the group as group=")
    if isinstance(name, str):
        window = window_named(name, "win_mutex", ValueError, group)
        return window.mutex(for_self=for_self, ranks=ranks)
    named = ranks if name is None else name
    return mutexes_of([rank_of(group)] if named is None and for_self else named, group)


def win_lock(name: str, group: Group = None) -> contextlib.AbstractContextManager[None]:
    """Hold the mutexes of all slots of this rank for a block. BlueFog has this function.

    Raises:
        ValueError: there is no window of that name.
        Others as `Window.mutex`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.ones(2), "w")
        True
        >>> with bf.win_lock("w"):
        ...     bf.win_update("w").tolist()
        [1.0, 1.0]
        >>> bf.win_free("w")
        True
    """
    return window_named(name, "win_lock", ValueError, group).mutex(for_self=True)


def win_fence(name: str, group: Group = None) -> bool:
    """Wait until what any rank has put before is in its place. Collective.

    BlueFog has this function.

    Returns:
        True.

    Raises:
        ValueError: there is no window of that name; other ranks fence or free another one.
        PeerFailed, CollectiveTimeout: a rank has died, or did not come.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.zeros(2), "w")
        True
        >>> bf.win_put(torch.ones(2), "w") and bf.win_fence("w")
        True
        >>> list(bf.get_win_version("w").values())  # Both sources have put.
        [1, 1]
        >>> bf.win_free("w")
        True
    """
    window_named(name, "win_fence", ValueError, group).fence()
    return True


# BlueFog has the shorter names, too; its first versions had the others.
win_put = neighbor_win_put
win_put_nonblocking = win_put_async = neighbor_win_put_nonblocking
win_accumulate = neighbor_win_accumulate
win_accumulate_nonblocking = win_accumulate_async = neighbor_win_accumulate_nonblocking
win_get = neighbor_win_get
win_get_nonblocking = win_get_async = neighbor_win_get_nonblocking
win_sync = win_update
win_sync_then_collect = win_update_then_collect
