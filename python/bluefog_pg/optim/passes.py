"""Tells of the passes of models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from torch.nn import Module, Parameter
    from torch.utils.hooks import RemovableHandle


class Watches(Protocol):
    """Who hears of backward passes."""

    def gradient(self, param: Parameter) -> None:
        """The pass has added to the parameter's gradient all that it will."""

    def backward(self) -> None:
        """The pass ends."""


class Forwards:
    """Calls `tell` when the models begin forward passes of their training."""

    def __init__(self, models: Iterable[Module], tell: Callable[[], None]) -> None:
        self._tell = tell
        self._handles = [model.register_forward_pre_hook(self._forward) for model in models]

    def remove(self) -> None:
        _remove(self._handles)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _forward(self, model: Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self._tell()


class Loads:
    """Calls `tell` before a model's `load_state_dict` replaces parameters."""

    def __init__(self, models: Iterable[Module], tell: Callable[[], None]) -> None:
        def load(*_: Any) -> None:
            tell()

        self._handles: list[RemovableHandle] = []
        for model in models:
            watch: Any = model.register_load_state_dict_pre_hook
            self._handles.append(watch(load))

    def remove(self) -> None:
        _remove(self._handles)


class Backwards:
    """Tells `who` of backward passes that reach the parameters.

    Of activation checkpoints with use_reentrant=True each segment counts as a pass.
    """

    def __init__(self, params: Iterable[Parameter], who: Watches) -> None:
        self._who = who
        self._is_under_way = False
        self._handles: list[RemovableHandle] = []
        for param in params:
            watch: Any = param.register_post_accumulate_grad_hook
            self._handles.append(watch(self._gradient))

    def remove(self) -> None:
        _remove(self._handles)

    def restart(self) -> None:
        """No pass is under way: the last one may have failed in its midst."""
        self._is_under_way = False

    def _gradient(self, param: Any) -> None:
        if not self._is_under_way:
            self._is_under_way = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        self._who.gradient(param)

    def _end(self) -> None:
        self._is_under_way = False
        self._who.backward()


def _remove(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
