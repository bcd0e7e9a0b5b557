"""BlueFog's functions of windows, which know them by their names."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg._core.group_state import member_of
from bluefog_pg._core.loader import load
from bluefog_pg.windows._switch import (
    turn_off_win_ops_with_associated_p,
    turn_on_win_ops_with_associated_p,
)
from bluefog_pg.windows.window import Window

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from bluefog_pg._C import WindowWork

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
    "win_accumulate_nonblocking",
    "win_associated_p",
    "win_cancel",
    "win_create",
    "win_fence",
    "win_free",
    "win_get",
    "win_get_nonblocking",
    "win_lock",
    "win_mutex",
    "win_poll",
    "win_put",
    "win_put_nonblocking",
    "win_read_neighbor",
    "win_update",
    "win_update_then_collect",
    "win_wait",
]

_log = logging.getLogger("bluefog_pg")
_numbers = itertools.count(1)
_handles: dict[object, WindowWork] = {}  # of what nobody has waited for


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


def win_free(name: str | None = None, group: Group = None) -> bool:
    """Collective: free the window of that name, or all. True.

    Raises:
        KeyError: there is none of that name.
    """
    windows = member_of(group).windows
    failure: Exception | None = None
    for each in sorted(windows) if name is None else [name]:
        try:
            _known(each, "win_free", KeyError, group).free()
        except Exception as caught:  # the others are freed all the same
            failure = failure or caught
    if failure:
        raise failure
    return True


def get_current_created_window_names(group: Group = None) -> list[str]:
    """Of the group's windows, sorted."""
    return sorted(member_of(group).windows)


def neighbor_win_put(
    tensor: Tensor,
    name: str,
    self_weight: float | Mapping[int, float] | None = None,
    dst_weights: Weights | bool = None,
    require_mutex: bool = False,
    group: Group = None,
) -> bool:
    """`Window.put` to out-neighbours; it is there when the call returns. True.

    It takes the positions of BlueFog before 0.2.2, too, (tensor, name, dst_weights, require_mutex):
    a dict in the third place is `dst_weights`.

    Raises:
        ValueError: there is no window of that name; ranks that are no out-neighbours; others as
            `Window.put`.
    """
    _write("win_put", tensor, name, self_weight, dst_weights, require_mutex, group)
    return True


def neighbor_win_accumulate(
    tensor: Tensor,
    name: str,
    self_weight: float | Mapping[int, float] | None = None,
    dst_weights: Weights | bool = None,
    require_mutex: bool = False,
    group: Group = None,
) -> bool:
    """`Window.accumulate` to out-neighbours, as `neighbor_win_put`. True."""
    _write("win_accumulate", tensor, name, self_weight, dst_weights, require_mutex, group)
    return True


def neighbor_win_get(
    name: str, src_weights: Weights = None, require_mutex: bool = False, group: Group = None
) -> bool:
    """`Window.get` from in-neighbours. True.

    Raises:
        ValueError: there is no window of that name; ranks that are no in-neighbours.
    """
    _get(name, src_weights, require_mutex, group)
    return True


def neighbor_win_put_nonblocking(
    tensor: Tensor,
    name: str,
    self_weight: float | Mapping[int, float] | None = None,
    dst_weights: Weights | bool = None,
    require_mutex: bool = False,
    group: Group = None,
) -> int:
    """`neighbor_win_put`, with a handle for `win_wait` and `win_poll`."""
    given = (tensor, name, self_weight, dst_weights, require_mutex, group)
    return _handle_of(_write("win_put", *given, async_op=True))


def neighbor_win_accumulate_nonblocking(
    tensor: Tensor,
    name: str,
    self_weight: float | Mapping[int, float] | None = None,
    dst_weights: Weights | bool = None,
    require_mutex: bool = False,
    group: Group = None,
) -> int:
    """`neighbor_win_accumulate`, with a handle for `win_wait` and `win_poll`."""
    given = (tensor, name, self_weight, dst_weights, require_mutex, group)
    return _handle_of(_write("win_accumulate", *given, async_op=True))


def neighbor_win_get_nonblocking(
    name: str, src_weights: Weights = None, require_mutex: bool = False, group: Group = None
) -> int:
    """`neighbor_win_get`, with a handle for `win_wait` and `win_poll`."""
    return _handle_of(_get(name, src_weights, require_mutex, group, async_op=True))


def win_poll(handle: int) -> bool:
    """Whether that operation has ended.

    Raises:
        ValueError: there is no such handle.
    """
    work = _handles.get(handle)
    if work is None:
        raise ValueError(f"[bluefog] win_poll: there is no handle {handle!r}")
    return work.is_completed()


def win_wait(handle: int | WindowWork) -> bool:
    """Wait for that operation, and forget its handle when it has ended. False where there is none.

    Of what `Window`'s methods return with async_op, it is `handle.wait()`.

    Raises:
        PeerFailed, CollectiveTimeout: as the operation that is waited for.
    """
    work = handle if isinstance(handle, load().WindowWork) else _handles.get(handle)
    if work is None:
        _log.warning("win_wait: there is no handle %r", handle)
        return False
    try:
        work.wait()
    finally:  # Ctrl-C ends the wait alone
        if work.is_completed():
            _handles.pop(handle, None)
    return True


def win_cancel(handle: int) -> None:
    """Forget a handle, whether its operation has ended or not: that goes on by itself.

    A handle that is not known is ignored. Asyncddp has this function.
    """
    _handles.pop(handle, None)


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
    window = _known(name, op, KeyError, group)
    _require(window, op, "neighbor_weights", neighbor_weights, "in-neighbours", window.sources)
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
    window = _known(name, "win_read_neighbor", KeyError, group)
    _require(window, "win_read_neighbor", "rank_", [rank_], "in-neighbours", window.sources)
    return window.read(rank_, require_mutex=require_mutex)


def win_update_then_collect(name: str, require_mutex: bool = True, group: Group = None) -> Tensor:
    """`Window.update_then_collect`. KeyError where there is no window of that name."""
    window = _known(name, "win_update_then_collect", KeyError, group)
    return window.update_then_collect(require_mutex=require_mutex)


def get_win_version(name: str, group: Group = None) -> dict[int, int]:
    """`Window.versions`. ValueError where there is no window of that name."""
    return _known(name, "get_win_version", ValueError, group).versions()


def win_associated_p(name: str, group: Group = None) -> float:
    """This rank's p. ValueError where there is no window of that name."""
    return _known(name, "win_associated_p", ValueError, group).associated_p


def win_mutex(
    name: str,
    for_self: bool = False,
    ranks: Iterable[int] | None = None,
    group: Group = None,
) -> contextlib.AbstractContextManager[None]:
    """`Window.mutex`. ValueError where there is no window of that name."""
    window = _known(name, "win_mutex", ValueError, group)
    return window.mutex(for_self=for_self, ranks=ranks)


def win_lock(name: str, group: Group = None) -> contextlib.AbstractContextManager[None]:
    """The mutexes of all slots of this rank. ValueError where there is no such window."""
    return _known(name, "win_lock", ValueError, group).mutex(for_self=True)


def win_fence(name: str, group: Group = None) -> bool:
    """Collective: what any rank has put before is in its place when the call returns. True."""
    _known(name, "win_fence", ValueError, group).fence()
    return True


def window_stats(group: Group = None) -> dict[str, dict[str, dict[int, dict[str, float]]]]:
    """What has come and gone, {window: {"from": {rank: ...}, "to": {rank: ...}}}.

    "from" each source: `changes` in all, `version` (those since the last update), `age` of the last
    in seconds and `p` of its slot. "to" each rank that this one has written to: `puts` (and
    accumulations), their `bytes`, and calls `dropped`, gets too, since it was dead.
    """
    return {
        name: {
            "from": _plain(window.states(), ("changes", "version", "age", "p")),
            "to": _plain(window.sent(), ("puts", "bytes", "dropped")),
        }
        for name, window in sorted(member_of(group).windows.items())
    }


def _plain(of: Mapping[int, Any], fields: Sequence[str]) -> dict[int, dict[str, float]]:
    return {rank: {field: getattr(it, field) for field in fields} for rank, it in of.items()}


# BlueFog's shorter names.
win_put = neighbor_win_put
win_put_nonblocking = neighbor_win_put_nonblocking
win_accumulate = neighbor_win_accumulate
win_accumulate_nonblocking = neighbor_win_accumulate_nonblocking
win_get = neighbor_win_get
win_get_nonblocking = neighbor_win_get_nonblocking


def _handle_of(work: WindowWork | None) -> int:
    assert work is not None  # noqa: S101 - it is asynchronous
    handle = next(_numbers)
    _handles[handle] = work
    return handle


def _write(
    op: str,
    tensor: Tensor,
    name: str,
    self_weight: float | Mapping[int, float] | None,
    dst_weights: Weights | bool,
    require_mutex: bool,
    group: Group,
    *,
    async_op: bool = False,
) -> WindowWork | None:
    # BlueFog's versions before 0.2.2 had no self_weight: what followed it came one place sooner.
    if isinstance(dst_weights, bool):
        require_mutex, dst_weights = dst_weights, None
    if isinstance(self_weight, Mapping):
        if dst_weights is not None:
            raise TypeError(f"[bluefog] {op}: dst_weights are given twice")
        dst_weights, self_weight = self_weight, None
    window = _known(name, op, ValueError, group)
    _require(window, op, "dst_weights", dst_weights, "out-neighbours", window.destinations)
    write = window.put if op == "win_put" else window.accumulate
    return write(
        tensor,
        self_weight=self_weight,
        dst_weights=dst_weights,
        require_mutex=require_mutex,
        async_op=async_op,
    )


def _get(
    name: str, src_weights: Weights, require_mutex: bool, group: Group, *, async_op: bool = False
) -> WindowWork | None:
    window = _known(name, "win_get", ValueError, group)
    _require(window, "win_get", "src_weights", src_weights, "in-neighbours", window.sources)
    return window.get(src_weights=src_weights, require_mutex=require_mutex, async_op=async_op)


def _known(name: str, op: str, error: type[Exception], group: Group) -> Window:
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


def _require(
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
