"""Whether all ranks make the same distributed optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

if TYPE_CHECKING:
    from torch.nn import Module, Parameter

    from bluefog_pg._member import Member
    from bluefog_pg.optim.order import Order
    from bluefog_pg.optim.plan import Plan


def require_alike(
    params: Sequence[Parameter], models: Sequence[Module], plan: Plan, order: Order, member: Member
) -> None:
    """Collective, where there are several ranks.

    Raises:
        ValueError: on every rank, where ranks differ in what makes messages different.
    """
    if member.size == 1:
        return
    names = {param: name for model in models for name, param in model.named_parameters()}
    mine = _described(params, names, plan, order)
    of_ranks: list[Any] = [None] * member.size
    dist.all_gather_object(of_ranks, mine, group=member.group)
    for rank, theirs in enumerate(of_ranks):
        for what, first in of_ranks[0].items():
            if theirs[what] != first:
                named = dist.get_process_group_ranks(member.group)
                raise ValueError(
                    f"{member.who} DistributedOptimizer: ranks differ in {what}: rank {named[0]} "
                    f"has {_brief(first, theirs[what])}, rank {named[rank]} "
                    f"{_brief(theirs[what], first)}"
                )


def _described(
    params: Sequence[Parameter], names: Mapping[Parameter, str], plan: Plan, order: Order
) -> dict[str, Any]:
    return {
        "order": _options_of(order),
        "communication": plan.communication,
        "every": plan.every,
        "compression": _options_of(plan.compression),
        "bucket_bytes": plan.bucket_bytes,
        "parameters": [
            (names.get(p, ""), str(p.dtype), tuple(p.shape), p.stride() if p.numel() else ())
            for p in params
        ],
    }


def _options_of(thing: Any) -> str:
    """Its type, and the numbers that it was made with, of ours; seeds may be each rank's own."""
    if thing is None or isinstance(thing, str):
        return str(thing)
    if not type(thing).__module__.startswith("bluefog_pg."):
        return type(thing).__name__
    numbers = {
        name.lstrip("_"): value
        for name, value in vars(thing).items()
        if isinstance(value, int | float) and name != "_seed"
    }
    options = ", ".join(f"{name}={value}" for name, value in sorted(numbers.items()))
    return f"{type(thing).__name__}({options})"


def _brief(mine: Any, other: Any) -> str:
    """Of lists, where they begin to differ."""
    if not isinstance(mine, list):
        return repr(mine)
    for number, entry in enumerate(mine):
        if number >= len(other) or entry != other[number]:
            return f"{entry} as number {number} of {len(mine)}"
    return f"{len(mine)} of them"
