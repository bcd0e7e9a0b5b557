"""How the ranks of a group make one window together."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bluefog_pg._agreement import all_gather
from bluefog_pg._loader import load

if TYPE_CHECKING:
    from bluefog_pg._C import WindowBluefog
    from bluefog_pg._member import Member


_numbers = itertools.count(1)  # of the windows that this process, as rank 0 of a group, has made


def joined(tensors: Sequence[torch.Tensor], where: str) -> torch.Tensor:
    """One memory for all, in which each keeps its values and its shape."""
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise TypeError(f"{where}: expected a torch.Tensor or a list of them")
    if len(types := {tensor.dtype for tensor in tensors}) > 1:
        raise ValueError(f"{where}: the tensors must have one type, got {sorted(map(str, types))}")
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    at = 0
    for tensor in tensors:
        part = flat[at : at + tensor.numel()]
        tensor.data = part.view(tensor.shape)
        at += tensor.numel()
    return flat


def open_together(
    member: Member,
    name: str,
    tensor: torch.Tensor,
    *,
    zero_init: bool,
    sources: Sequence[int],
    drops: bool,
) -> WindowBluefog:
    """Collective: two all_gathers of some bytes.

    Raises:
        ValueError: ranks give other names, types or shapes (on every rank); or as WindowBluefog.
        RuntimeError: another rank could not make its part.
    """
    error, place = None, (0, 0)
    made: WindowBluefog | None = None
    try:
        made = load().WindowBluefog(member.backend, name, tensor, drops)
        place = made.place
    except Exception as caught:  # the others must hear of it
        error = caught
    told = f"'{name}' of {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    digest = hashlib.blake2b(told.encode(), digest_size=8).digest()
    told_as = int.from_bytes(digest, "big", signed=True)
    mine = torch.tensor([error is not None, told_as, next(_numbers), *place])
    table = torch.empty(member.size, 5, dtype=torch.int64)
    all_gather(table, mine, group=member.group)
    if error:
        raise error
    where = f"{member.who} win_create '{name}'"
    failed = [rank for rank in range(member.size) if table[rank, 0]]
    if failed:
        raise RuntimeError(f"{where}: ranks {failed} of the group could not make their part")
    others = [rank for rank in range(member.size) if table[rank, 1] != table[0, 1]]
    if others:
        names: list[Any] = [None] * member.size
        dist.all_gather_object(names, told, group=member.group)
        raise ValueError(
            f"{where}: ranks do not make the same window: rank 0 {names[0]}, "
            f"rank {others[0]} {names[others[0]]}"
        )
    assert made is not None  # noqa: S101
    number, places = int(table[0, 2]), [(room, at) for *_, room, at in table.tolist()]
    made.open(number, places, zero_init, sources)
    dist.barrier(group=member.group)  # else a neighbour might put before this rank has filled it
    return made
