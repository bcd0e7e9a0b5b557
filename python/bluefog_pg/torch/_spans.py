"""A model's passes in BlueFog's timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bluefog_pg import timeline

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer


class Spans:
    """FORWARD, and from its end to the optimizer's step GRADIENT COMPT., for each model."""

    def __init__(self, optimizer: Optimizer, models: Sequence[Module]) -> None:
        self._open: list[str] = []
        self._handles = [optimizer.register_step_pre_hook(self._step)]
        for model in models:
            self._handles.append(model.register_forward_pre_hook(self._begin))
            self._handles.append(model.register_forward_hook(self._end))

    def remove(self) -> None:
        self._close()
        while self._handles:
            self._handles.pop().remove()

    def _begin(self, model: Module, *_: Any) -> None:
        self._close()
        self._draw(type(model).__name__, "FORWARD")

    def _end(self, model: Module, *_: Any) -> None:
        self._close()
        if model.training:
            self._draw(type(model).__name__, "GRADIENT COMPT.")

    def _step(self, *_: Any) -> None:
        self._close()

    def _draw(self, title: str, activity: str) -> None:
        if line := timeline.current():
            line.begin(title, activity)
            self._open.append(title)

    def _close(self) -> None:
        while self._open:
            title = self._open.pop()
            if line := timeline.current():
                line.end(title)
