"""This module has hooks that tell of models' forward and backward passes, and of loads."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from torch.nn import Module, Parameter
    from torch.utils.hooks import RemovableHandle


class Watches(Protocol):
    """This is the protocol of an object that hears of backward passes."""

    def gradient(self, param: Parameter) -> None:
        """Note that the pass has added to the parameter's gradient all that it will."""

    def backward(self) -> None:
        """Note that the pass ends."""


class _Told:
    """A _Told calls a method, as a hook, as long as the method's object lives.

    It holds the object weakly. In a copy of a model with the hook it calls nobody.
    """

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
    """A _Forward is a hook of a module that tells of forward passes in training."""

    def __init__(self, told: _Told) -> None:
        self._told = told

    # A graph break at the beginning of a model costs nothing.
    @torch.compiler.disable(  # type: ignore[untyped-decorator,no-untyped-call]
        reason="bluefog_pg's DistributedOptimizer must see each forward pass of training, "
        "between two graphs: compile without fullgraph=True"
    )
    def __call__(self, model: Module, _inputs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self._told()


class ForwardHooks:
    """ForwardHooks call the method `tell` when the models begin forward passes in training."""

    def __init__(self, models: Iterable[Module], tell: Callable[[], None]) -> None:
        hook = _Forward(_Told(tell))
        self._handles = [model.register_forward_pre_hook(hook) for model in models]

    def remove(self) -> None:
        _remove(self._handles)


class LoadHooks:
    """LoadHooks call the method `tell` before `load_state_dict` of a model, or of a part of it."""

    def __init__(self, models: Iterable[Module], tell: Callable[[], None]) -> None:
        hook = _Told(tell)
        self._handles: list[RemovableHandle] = []
        for module in dict.fromkeys(part for model in models for part in model.modules()):
            watch: Any = module.register_load_state_dict_pre_hook
            self._handles.append(watch(hook))

    def remove(self) -> None:
        _remove(self._handles)


class BackwardHooks:
    """BackwardHooks tell `who`, as long as it lives, of backward passes that reach the parameters.

    Each segment of an activation checkpoint with use_reentrant=True counts as a pass.
    """

    def __init__(self, params: Iterable[Parameter], who: Watches) -> None:
        self._who = weakref.ref(who)
        self._is_under_way = False
        self._handles: list[RemovableHandle] = []
        for param in params:
            is_frozen = not param.requires_grad
            param.requires_grad_(True)  # torch registers no hook on a parameter that is frozen.
            watch: Any = param.register_post_accumulate_grad_hook
            self._handles.append(watch(self._gradient))
            param.requires_grad_(not is_frozen)

    def remove(self) -> None:
        _remove(self._handles)

    def restart(self) -> None:
        """Forget the last pass, which may have failed before its end."""
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
