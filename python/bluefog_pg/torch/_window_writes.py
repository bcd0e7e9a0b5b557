"""This module has BlueFog's functions that write to windows, and know these by their names.

Any thread may call the functions. Names belong to a group; None is the default one.
"""

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
_handles: dict[object, WindowWork] = {}  # operations that nobody has waited for, by handle


@drawn_as("WIN_PUT")
def neighbor_win_put(
    tensor: Tensor,
    name: str,
    self_weight: float | Mapping[int, float] | None = None,
    dst_weights: Weights | bool = None,
    require_mutex: bool = False,
    group: Group = None,
) -> bool:
    """Put a tensor into the window's slots at out-neighbors, as `Window.put`.

    The tensor is there when the call returns. `win_put` is the same function. BlueFog has it. It
    takes the positions of BlueFog before 0.2.2, too, (tensor, name, dst_weights, require_mutex): a
    dict in the third place is `dst_weights`.

    Args:
        tensor: has the window's shape and dtype.
        name: the window's name.
        self_weight, dst_weights, require_mutex: as in `Window.put`.
        group: the process group; None, the default one.

    Returns:
        True.

    Raises:
        ValueError: there is no window of that name; ranks that are no out-neighbors; others as
            `Window.put`.
        PeerFailed, CollectiveTimeout: as `Window.put`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.win_create(x, "w", zero_init=True)
        True
        >>> bf.win_put(x, "w") and bf.win_fence("w")
        True
        >>> mean = (bf.rank() + sum(bf.in_neighbor_ranks())) / 3
        >>> torch.allclose(bf.win_update("w"), torch.full((2,), mean))
        True
        >>> bf.win_free("w")
        True
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
    """Add a tensor to the window's slots at out-neighbors, as `Window.accumulate`.

    `win_accumulate` is the same function. BlueFog has it.

    Args:
        tensor, name, self_weight, dst_weights, require_mutex, group: as in `neighbor_win_put`.

    Returns:
        True.

    Raises:
        The errors of `neighbor_win_put`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.zeros(2), "w", zero_init=True)
        True
        >>> for _ in range(2):
        ...     _ = bf.win_accumulate(torch.ones(2), "w")
        >>> bf.win_fence("w")
        True
        >>> bf.win_update_then_collect("w").tolist()  # twice from each of two sources
        [4.0, 4.0]
        >>> bf.win_free("w")
        True
    """
    _write("win_accumulate", tensor, name, self_weight, dst_weights, require_mutex, group)
    return True


@drawn_as("WIN_GET")
def neighbor_win_get(
    name: str, src_weights: Weights = None, require_mutex: bool = False, group: Group = None
) -> bool:
    """Fetch the tensors of in-neighbors into this rank's slots, as `Window.get`.

    `win_get` is the same function. BlueFog has it.

    Args:
        name: the window's name.
        src_weights, require_mutex: as in `Window.get`.
        group: the process group; None, the default one.

    Returns:
        True.

    Raises:
        ValueError: there is no window of that name; ranks that are no in-neighbors.
        PeerFailed, CollectiveTimeout: as `Window.put`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.full((2,), float(bf.rank())), "w")
        True
        >>> source = bf.in_neighbor_ranks()[0]
        >>> bf.win_get("w", src_weights={source: 2.0})
        True
        >>> bf.win_read_neighbor("w", source).tolist() == [2.0 * source] * 2
        True
        >>> bf.win_free("w")
        True
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
    """Begin what `neighbor_win_put` does.

    `win_put_nonblocking` is the same function. BlueFog has it. The tensor has been read when the
    call returns.

    Args:
        tensor, name, self_weight, dst_weights, require_mutex, group: as in `neighbor_win_put`.

    Returns:
        A handle for `win_wait` and `win_poll`.

    Raises:
        ValueError: as `neighbor_win_put`. Other errors come in `win_wait`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.zeros(2), "w")
        True
        >>> handle = bf.win_put_nonblocking(torch.ones(2), "w")
        >>> bf.win_wait(handle) and bf.win_fence("w") and bf.win_free("w")
        True
    """
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
    """Begin what `neighbor_win_accumulate` does.

    `win_accumulate_nonblocking` is the same function. BlueFog has it.

    Args:
        tensor, name, self_weight, dst_weights, require_mutex, group: as in `neighbor_win_put`.

    Returns:
        A handle for `win_wait` and `win_poll`.

    Raises:
        ValueError: as `neighbor_win_put`. Other errors come in `win_wait`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.zeros(2), "w", zero_init=True)
        True
        >>> handle = bf.win_accumulate_nonblocking(torch.ones(2), "w")
        >>> bf.win_wait(handle) and bf.win_fence("w")
        True
        >>> bf.win_update_then_collect("w").tolist()  # once from each of two sources
        [2.0, 2.0]
        >>> bf.win_free("w")
        True
    """
    given = (tensor, name, self_weight, dst_weights, require_mutex, group)
    return _handle_of(_write("win_accumulate", *given, async_op=True))


@drawn_as("WIN_GET")
def neighbor_win_get_nonblocking(
    name: str, src_weights: Weights = None, require_mutex: bool = False, group: Group = None
) -> int:
    """Begin what `neighbor_win_get` does.

    `win_get_nonblocking` is the same function. BlueFog has it.

    Args:
        name, src_weights, require_mutex, group: as in `neighbor_win_get`.

    Returns:
        A handle for `win_wait` and `win_poll`.

    Raises:
        ValueError: as `neighbor_win_get`. Other errors come in `win_wait`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.full((2,), float(bf.rank())), "w", zero_init=True)
        True
        >>> bf.win_wait(bf.win_get_nonblocking("w"))
        True
        >>> source = bf.in_neighbor_ranks()[0]
        >>> bf.win_read_neighbor("w", source).tolist() == [source] * 2
        True
        >>> bf.win_free("w")
        True
    """
    return _handle_of(_get(name, src_weights, require_mutex, group, async_op=True))


def win_poll(handle: int) -> bool:
    """Return whether the operation of that handle has ended. BlueFog has this function.

    Args:
        handle: what a nonblocking operation returned.

    Raises:
        ValueError: there is no such handle.

    Example:
        >>> import time
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.zeros(2), "w")
        True
        >>> handle = bf.win_put_nonblocking(torch.ones(2), "w")
        >>> while not bf.win_poll(handle):
        ...     time.sleep(0.001)
        >>> bf.win_wait(handle) and bf.win_free("w")
        True
    """
    work = _handles.get(handle)
    if work is None:
        raise ValueError(f"[bluefog] win_poll: there is no handle {handle!r}")
    return work.is_completed()


def win_wait(handle: int | WindowWork) -> bool:
    """Wait for the operation of that handle, and forget the handle when it has ended.

    It also takes what `Window`'s methods return with async_op, and calls its `wait()`. BlueFog has
    this function.

    Args:
        handle: what a nonblocking operation returned.

    Returns:
        True; or False where there is no such handle.

    Raises:
        PeerFailed, CollectiveTimeout: as the operation that is waited for.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.zeros(2), "w")
        True
        >>> handle = bf.win_put_nonblocking(torch.ones(2), "w")
        >>> bf.win_wait(handle), bf.win_wait(handle)
        (True, False)
        >>> bf.win_free("w")
        True
    """
    work = handle if isinstance(handle, load().WindowWork) else _handles.get(handle)
    if work is None:
        _log.warning("win_wait: there is no handle %r", handle)
        return False
    try:
        work.wait()
    finally:  # Ctrl-C ends the wait, but not the operation.
        if work.is_completed():
            _handles.pop(handle, None)
    return True


def win_cancel(handle: int) -> None:
    """Forget a handle, whether its operation has ended or not: that goes on by itself.

    An unknown handle is ignored. Asyncddp has this function.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.win_create(torch.zeros(2), "w")
        True
        >>> handle = bf.win_put_nonblocking(torch.ones(2), "w")
        >>> bf.win_cancel(handle)
        >>> bf.win_wait(handle)
        False
        >>> bf.win_free("w")
        True
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
    # BlueFog before 0.2.2 had no self_weight, so the arguments after it came one position sooner.
    if isinstance(dst_weights, bool):
        require_mutex, dst_weights = dst_weights, None
    if isinstance(self_weight, Mapping):
        if dst_weights is not None:
            raise TypeError(f"[bluefog] {op}: dst_weights are given twice")
        dst_weights, self_weight = self_weight, None
    window = window_named(name, op, ValueError, group)
    require_neighbors(window, op, "dst_weights", dst_weights, "out-neighbors", window.destinations)
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
    require_neighbors(window, "win_get", "src_weights", src_weights, "in-neighbors", window.sources)
    return window.get(src_weights=src_weights, require_mutex=require_mutex, async_op=async_op)


def _handle_of(work: WindowWork | None) -> int:
    assert work is not None  # noqa: S101 - The call was asynchronous.
    handle = next(_numbers)
    _handles[handle] = work
    return handle
