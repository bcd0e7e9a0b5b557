"""BlueFog's functions that put into windows by name, accumulate there and get from there."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bluefog_pg._core.loader import load
from bluefog_pg.torch._window_lookup import drawn_as, require_neighbors, window_named

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from bluefog_pg._C import WindowWork

    Group = ProcessGroup | None
    Weights = Mapping[int, float] | None

_log = logging.getLogger("bluefog_pg")
_numbers = itertools.count(1)
_handles: dict[object, WindowWork] = {}  # of what nobody has waited for


@drawn_as("WIN_PUT")
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


@drawn_as("WIN_ACCUMULATE")
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


@drawn_as("WIN_GET")
def neighbor_win_get(
    name: str, src_weights: Weights = None, require_mutex: bool = False, group: Group = None
) -> bool:
    """`Window.get` from in-neighbours. True.

    Raises:
        ValueError: there is no window of that name; ranks that are no in-neighbours.
    """
    _get(name, src_weights, require_mutex, group)
    return True


@drawn_as("WIN_PUT")
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


@drawn_as("WIN_ACCUMULATE")
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


@drawn_as("WIN_GET")
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
    window = window_named(name, op, ValueError, group)
    require_neighbors(window, op, "dst_weights", dst_weights, "out-neighbours", window.destinations)
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
    window = window_named(name, "win_get", ValueError, group)
    require_neighbors(
        window, "win_get", "src_weights", src_weights, "in-neighbours", window.sources
    )
    return window.get(src_weights=src_weights, require_mutex=require_mutex, async_op=async_op)


def _handle_of(work: WindowWork | None) -> int:
    assert work is not None  # noqa: S101 - it is asynchronous
    handle = next(_numbers)
    _handles[handle] = work
    return handle
