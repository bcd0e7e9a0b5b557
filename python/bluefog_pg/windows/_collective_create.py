"""This module has the functions by which the ranks of a group make one window together."""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg._core.argument_checker import described
from bluefog_pg._core.errors import NAMED
from bluefog_pg._core.group_check import all_gather, meeting, named_by_all, told_by
from bluefog_pg._core.loader import load

if TYPE_CHECKING:
    from bluefog_pg._C import TensorWindow
    from bluefog_pg._core.group_state import GroupState


_log = logging.getLogger("bluefog_pg")
_numbers = itertools.count(1)  # Rank 0 of a group takes each new window's number from here.


def joined(tensors: Sequence[torch.Tensor], where: str) -> torch.Tensor:
    """Move all tensors into one memory, and return it; each keeps its values and its shape."""
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise TypeError(f"{where}: expected a torch.Tensor or a list of them")
    if len(types := {tensor.dtype for tensor in tensors}) > 1:
        raise ValueError(f"{where}: the tensors must have one type, got {sorted(map(str, types))}")
    if len(devices := {tensor.device for tensor in tensors}) > 1:
        raise ValueError(
            f"{where}: the tensors must be on one device, got {sorted(map(str, devices))}"
        )
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    at = 0
    for tensor in tensors:
        part = flat[at : at + tensor.numel()]
        tensor.data = part.view(tensor.shape)
        at += tensor.numel()
    return flat


@dataclass(frozen=True)
class WindowSpec:
    """A WindowSpec says which window a rank wants to make."""

    tensor: torch.Tensor
    is_fresh: bool  # whether nothing else points to the tensor's memory
    sources: Sequence[int]
    zero_init: bool
    drops: bool


def open_together(member: GroupState, name: Any, spec: Callable[[], WindowSpec]) -> TensorWindow:
    """Make the window on all ranks.

    Collective: it makes two all_gathers of some bytes, or five for a tensor on an accelerator.

    Args:
        member: this rank's state of the group.
        name: the window's name.
        spec: says which window to make; it may raise, and then the other ranks raise, too.

    Raises:
        ValueError: ranks give other names, types or shapes (on every rank); or as TensorWindow.
        RuntimeError: another rank could not make its part.
        DistError: a collective of win_create failed.
        Exception: the error that `spec` raised on this rank.
    """
    where = f"{member.who} win_create {name!r}"
    with meeting(where):
        return _opened(member, name, spec, where)


def _opened(
    member: GroupState, name: Any, spec: Callable[[], WindowSpec], where: str
) -> TensorWindow:
    error, place, told = None, (0, 0), f"{name!r}"
    made: TensorWindow | None = None
    try:
        mine = spec()
        told = f"'{name}' of {described(mine.tensor)} on {mine.tensor.device.type}"
        made = load().TensorWindow(
            member.backend, name, mine.tensor, mine.is_fresh, mine.drops, mine.sources
        )
        place = made.place
    except Exception as caught:
        error = caught
    row = _row([error is not None, _digest(told), next(_numbers), *place])
    table = row.new_empty(member.size, len(row))
    all_gather(table.view(-1), row, group=member.group)
    _require_all(where, error, table[:, 0])
    others = [rank for rank in range(member.size) if table[rank, 1] != table[0, 1]]
    if others:
        names: list[Any] = [None] * member.size
        dist.all_gather_object(names, told, group=member.group)
        raise ValueError(
            f"{where}: ranks do not make the same window: rank 0 makes {names[0]}, "
            f"rank {others[0]} makes {names[others[0]]}"
        )
    assert made is not None  # noqa: S101
    number, places = int(table[0, 2]), [(room, at) for *_, room, at in table.tolist()]
    direct = _Direct()
    if is_on_accelerator(made):
        direct, error = _reach_out(member, made, mine, where)
    try:
        made.open(number, places, mine.zero_init, direct.writers, direct.owners)
    except Exception as caught:
        error = caught
    # Without this meeting, a neighbor might put into the window before this rank has filled it.
    has_failed = row.new_empty(member.size)
    all_gather(has_failed, _row([error is not None]), group=member.group)
    _require_all(where, error, has_failed)
    made.note_opened()
    return made


def is_on_accelerator(window: TensorWindow) -> bool:
    """Return whether the window's tensor is on an accelerator, the same on all ranks."""
    return not window.tensor.is_cpu


@dataclass(frozen=True)
class _Direct:
    """A _Direct has the ranks that write to this one's device memory, and those it writes to."""

    writers: Sequence[int] = ()
    owners: Sequence[int] = ()


def _reach_out(
    member: GroupState, made: TensorWindow, mine: WindowSpec, where: str
) -> tuple[_Direct, Exception | None]:
    """Let both sides of each edge open the other's memory.

    Collective: it makes three all_gathers.

    Returns:
        The ranks with which that worked on both sides, and the error of this rank, if any.
    """
    sources = named_by_all(member.group, mine.sources)[:, 0]  # [i, j] says whether j writes to i.
    ticket = torch.frombuffer(bytearray(made.ticket()), dtype=torch.uint8)
    tickets = ticket.new_empty(member.size, ticket.numel())
    all_gather(tickets.view(-1), ticket, group=member.group)
    slots: list[int] = []
    tensors: list[int] = []
    error: Exception | None = None
    try:
        slots, tensors, reason = made.reach_out(
            [bytes(row.tolist()) for row in tickets],
            [row.nonzero().flatten().tolist() for row in sources],
        )
        if reason:
            _log.warning("%s: goes through the host's memory: %s", where, reason)
    except Exception as caught:
        error = caught
    opened = named_by_all(member.group, slots, tensors)  # [i] says whose memory i has opened.
    direct = (sources & opened[:, 0].T & opened[:, 1]).bool()
    writers, owners = direct[member.rank], direct[:, member.rank]
    return _Direct(writers.nonzero().flatten().tolist(), owners.nonzero().flatten().tolist()), error


def meet(member: GroupState, call: str) -> None:
    """Wait for all other ranks, which must make the same call. Collective.

    Raises:
        ValueError: a rank makes another call (on every rank).
        DistError: the collective of `call` failed.
    """
    mine = _row([_digest(call)])
    table = mine.new_empty(member.size)
    with meeting(f"{member.who} {call}"):
        all_gather(table, mine, group=member.group)
    if others := (table != table[member.rank]).nonzero().flatten().tolist():
        raise ValueError(
            f"{member.who} {call}: ranks {others} of the group fence or free another window"
        )


def _row(numbers: Sequence[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device="cpu")


def _digest(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _require_all(where: str, error: Exception | None, has_failed: torch.Tensor) -> None:
    if isinstance(error, RuntimeError) and not str(error).startswith(NAMED):
        raise told_by(where, error)
    if error:
        raise error
    if failed := has_failed.nonzero().flatten().tolist():
        raise RuntimeError(f"{where}: ranks {failed} of the group could not make their part")
