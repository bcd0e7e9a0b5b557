"""Tells of the passes of models."""

from __future__ import annotations

import weakref
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


class _Told:
    """Whom a hook tells: nobody when that is gone, and in a copy of what has the hook."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._method = weakref.WeakMethod(tell)

    def __call__(self, *_: Any) -> None:
        if method := self._method():
            method()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Told, (_Nobody.tell,)


class _Nobody:
    @classmethod
    def tell(cls) -> None:
        pass


class _Forward:
    """A hook of a module."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    # A graph break at its beginning costs a model nothing.
    @torch.compiler.disable(  # type: ignore[untyped-decorator,no-untyped-call]
        reason="bluefog_pg's DistributedOptimizer hears of each forward pass of the model's "
        "training, between two graphs: compile without fullgraph=True"
    )
    def __call__(self, model: Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self._told()


class ForwardHooks:
    """Calls `tell`, a method, when the models begin forward passes of their training."""

    def __init__(self, models: Iterable[Module], tell: Callable[[], None]) -> None:
        hook = _Forward(_Told(tell))
        self._handles = [model.register_forward_pre_hook(hook) for model in models]

    def remove(self) -> None:
        _remove(self._handles)


class LoadHooks:
    """Calls `tell`, a method, before `load_state_dict` of a model, or of a part of it."""

    def __init__(self, models: Iterable[Module], tell: Callable[[], None]) -> None:
        hook = _Told(tell)
        self._handles: list[RemovableHandle] = []
        for module in dict.fromkeys(part for model in models for part in model.modules()):
            watch: Any = module.register_load_state_dict_pre_hook
            self._handles.append(watch(hook))

    def remove(self) -> None:
        _remove(self._handles)


class BackwardHooks:
    """Tells `who`, as long as there is one, of backward passes that reach the parameters.

    Of activation checkpoints with use_reentrant=True each segment counts as a pass.
    """

    def __init__(self, params: Iterable[Parameter], who: Watches) -> None:
        self._who = weakref.ref(who)
        self._is_under_way = False
        self._handles: list[RemovableHandle] = []
        for param in params:
            is_frozen = not param.requires_grad
            param.requires_grad_(True)  # torch registers no hook on others
            watch: Any = param.register_post_accumulate_grad_hook
            self._handles.append(watch(self._gradient))
            param.requires_grad_(not is_frozen)

    def remove(self) -> None:
        _remove(self._handles)

    def restart(self) -> None:
        """No pass is under way: the last one may have failed in its midst."""
        self._is_under_way = False

    def _gradient(self, param: Any) -> None:
        who = self._who()
        if who is None:
            return
        if not self._is_under_way:
            self._is_under_way = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        who.gradient(param)

    def _end(self) -> None:
        self._is_under_way = False
        if who := self._who():
            who.backward()


def _remove(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
