"""This module draws a model's passes in BlueFog's timeline, parameter by parameter."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg._core import timeline

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer


class Spans:
    """Draw FORWARD while a layer computes, for each parameter that is its own.

    From the end of the model's forward pass until the parameter has its gradient, it draws GRADIENT
    COMPT. If a parameter gets no gradient, the optimizer's step ends the bar. It owns hooks of the
    models and the optimizer, until `remove`.
    """

    def __init__(self, optimizer: Optimizer, models: Sequence[Module]) -> None:
        self._open: Counter[str] = Counter()
        self._handles: list[Any] = [optimizer.register_step_pre_hook(self._close)]
        for model in models:
            self._handles.append(model.register_forward_pre_hook(self._close))
            for path, layer in model.named_modules():
                names = (name for name, _ in layer.named_parameters(recurse=False))
                own = [f"{path}.{name}" if path else name for name in names]
                if own:
                    self._watch(layer, own)
            trained: dict[str, Any] = _trained(model)
            for name, param in trained.items():
                hook = functools.partial(self._end, name)
                self._handles.append(param.register_post_accumulate_grad_hook(hook))
            self._handles.append(model.register_forward_hook(self._begin_gradients))

    def remove(self) -> None:
        self._close()
        while self._handles:
            self._handles.pop().remove()

    def _watch(self, layer: Module, names: list[str]) -> None:
        def begin(*_: Any) -> None:
            for name in names:
                self._begin(name, "FORWARD")

        def end(*_: Any) -> None:
            for name in names:
                self._end(name)

        self._handles.append(layer.register_forward_pre_hook(begin))
        self._handles.append(layer.register_forward_hook(end))

    def _begin_gradients(self, model: Module, *_: Any) -> None:
        if model.training:
            for name in _trained(model):
                self._begin(name, "GRADIENT COMPT.")

    def _begin(self, name: str, activity: str) -> None:
        if line := timeline.current():
            line.begin(name, activity)
            self._open[name] += 1

    def _end(self, name: str, *_: Any) -> None:
        line = timeline.current()
        if line and self._open[name]:
            self._open[name] -= 1
            line.end(name)

    def _close(self, *_: Any) -> None:
        for name in list(self._open.elements()):
            self._end(name)


def _trained(model: Module) -> dict[str, Any]:
    return {name: param for name, param in model.named_parameters() if param.requires_grad}
