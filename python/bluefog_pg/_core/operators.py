"""This module has what the operators of torch.ops.bluefog share."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch._library.effects import EffectType
from torch.distributed import distributed_c10d

from bluefog_pg._core.group_state import GroupState, member_of

if TYPE_CHECKING:
    from torch import Tensor

library: Any = torch.library.Library("bluefog", "DEF")  # type: ignore[no-untyped-call]


def register(op: str, run: Any, fake: Any, keep: Any = None, backward: Any = None) -> None:
    """Register the functions of an operator that `library` has defined.

    Compilers keep each call where it is, because other ranks wait for it. They keep it even if its
    result is not used, or equals another call's.

    Args:
        op: the operator's name.
        run: runs the operator.
        fake: returns results of the right shapes, without data.
        keep: saves for `backward` what it needs.
        backward: computes the gradients; without it, no gradients go through the operator.
    """
    library.impl(op, run, "CompositeExplicitAutograd")
    library._register_effectful_op(f"bluefog::{op}", EffectType.ORDERED)
    torch.library.register_fake(f"bluefog::{op}", fake, lib=library)
    if backward is not None:
        torch.library.register_autograd(f"bluefog::{op}", backward, setup_context=keep, lib=library)


_requires_grad = operator.attrgetter("requires_grad")


def any_requires_grad(tensors: Iterable[Tensor]) -> bool:
    return any(map(_requires_grad, tensors))


def keeps_graph(async_op: bool) -> bool:
    """Return whether a call with tensors that require gradients must go through an operator."""
    return not async_op and torch.is_grad_enabled()


def member_named(group_name: str) -> GroupState:
    """Return this rank's state of the group of that name; "" is the default group."""
    if not group_name:
        return member_of(None)
    resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]
    return member_of(resolve(group_name))


def alike(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """Return a new contiguous tensor of the same shape and type; it also serves as a fake."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def some_rows(like: Tensor) -> Tensor:
    """Return a fake result with an unknown number of rows, which only other ranks know."""
    return like.new_empty((torch.library.get_ctx().new_dynamic_size(), *like.shape[1:]))
