"""Tells an optimizer of its model's passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.nn import Module, Parameter
    from torch.utils.hooks import RemovableHandle

    from bluefog_pg.optim.order import Order


class Passes:
    """Watches forward passes of training, and backward passes that reach the parameters."""

    def __init__(
        self,
        forward: Callable[[], None],
        order: Order,
        models: Iterable[Module],
        params: Iterable[Parameter],
    ) -> None:
        """`order` hears of backward passes."""
        self._begin, self._order = forward, order
        self._goes_backward = False
        self._handles: list[RemovableHandle] = [
            model.register_forward_pre_hook(self._forward) for model in models
        ]
        for param in params:
            watch: Any = param.register_post_accumulate_grad_hook
            self._handles.append(watch(self._gradient))

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _forward(self, model: Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self._begin()

    def _gradient(self, param: Any) -> None:
        if not self._goes_backward:
            self._goes_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        self._order.gradient(param)

    def _end(self) -> None:
        self._goes_backward = False
        self._order.backward()
