"""This module warns of steps that a program seems to have left out."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import Parameter

from bluefog_pg._core.warning import warn

# Three steps with equally many passes before each show what a program's steps look like.
_ENOUGH = 3
_SOME = 8  # the number of parameters to look at; a look at thousands would take time


class StepsLeftOut:
    """A StepsLeftOut counts the forward passes before each step: twice as many mean a missing step.

    A pass that begins with gradients does not count, because the program accumulates them. A rank
    that leaves out a step, since its batch gave NaN, is an exchange behind from then on. Without a
    warning nobody would hear of it before the end of the training, as each exchange finds a
    counterpart.
    """

    def __init__(self, who: str, params: Sequence[Parameter]) -> None:
        self._who = who
        self._some = params[:_SOME]
        self._passes = self._usual = self._alike = 0
        self._has_warned = False

    def forward(self) -> None:
        """Note that a forward pass of the training begins."""
        self._passes += all(param.grad is None for param in self._some)

    def step(self) -> None:
        """Note that a step begins, and warn if one seems to have been left out before it."""
        passes, self._passes = self._passes, 0
        if self._alike >= _ENOUGH and passes > self._usual and passes % self._usual == 0:
            self._warn(passes)
            return
        is_alike = passes > 0 and passes == self._usual
        self._alike = self._alike + 1 if is_alike else int(passes > 0)
        self._usual = passes

    def _warn(self, passes: int) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        steps = passes // self._usual - 1
        left_out = "a step was" if steps == 1 else f"{steps} steps were"
        warn(
            f"{self._who} DistributedOptimizer: the model made {passes} forward passes without "
            f"gradients since the last step(), and {self._usual} before each of the {self._alike} "
            f"steps until then. If {left_out} left out on this rank alone, as for a batch that "
            "gives NaN, this rank is behind the others from now on. Call zero_grad() and step() "
            "for such a batch, too",
        )
