"""This module has local steps, after some of which an outer optimizer makes a step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Parameter

from bluefog_pg.optim.algorithm import Algorithm, Update, copy_alike, copy_parts
from bluefog_pg.optim.bucket import parts_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from bluefog_pg.optim.context import Context


class LocalSteps(Algorithm):
    """Make `every` steps on each rank alone; then outer(anchor, gradient anchor - average(w)).

    Parameters go on from the anchor that comes out. SGD of learning rate 1 is plain local SGD. With
    momentum it is SlowMo (Wang, Tantia, Ballas and Rabbat, ICLR 2020), with Nesterov's DiLoCo
    (Douillard et al., 2023). Where the average is of neighbors, anchors are averaged with them,
    too, as in NoLoCo (Kolehmainen et al., 2025).

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns an anchor for each bucket and the outer optimizer; give each
    optimizer its own.

    Args:
        outer: makes the outer optimizer of the anchors; None, that of local SGD.

    Raises:
        TypeError: `outer` is no function that makes an optimizer.

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> order = bf.optim.LocalSteps(lambda anchors: torch.optim.SGD(anchors, lr=0.7))
        >>> sgd = torch.optim.SGD([w], lr=0.5)
        >>> optimizer = bf.DistributedOptimizer(sgd, [], "allreduce", order=order, every=4)
        >>> for _ in range(60):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((w - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(w.item(), 3)
        1.5
    """

    def __init__(self, outer: Callable[[list[Parameter]], Optimizer] | None = None) -> None:
        """Take `outer`, which makes the outer optimizer of the anchors; None is for local SGD."""
        if outer is not None and (not callable(outer) or isinstance(outer, torch.optim.Optimizer)):
            raise TypeError(
                "[bluefog] LocalSteps: outer must be a function that makes an optimizer of the "
                "anchors, such as lambda anchors: torch.optim.SGD(anchors, lr=0.7), not "
                f"{type(outer).__name__}"
            )
        self._make = outer or partial(torch.optim.SGD, lr=1.0)

    def open(self, context: Context) -> None:
        super().open(context)
        self._anchors = [Parameter(flat) for flat in context.zeros()]
        self._outer = self._make(self._anchors)
        self._steps = 0
        self._has_anchors = False
        self._are_alike = False  # whether all ranks have the same anchors

    def reopen(self, context: Context) -> None:
        steps, has_anchors = self._steps, self._has_anchors
        before = {name: parts_of(self.context.buckets, kept) for name, kept in self.flats().items()}
        counts, groups = self._counts(), self._outer.param_groups
        self.open(context)
        for mine, group in zip(self._outer.param_groups, groups, strict=False):
            mine.update({name: value for name, value in group.items() if name != "params"})
        self._steps, self._has_anchors = steps, has_anchors
        elementwise = [name for name in before if name != "anchors"]
        before["anchors"] = {p: p for b in context.buckets for p in b.params} | before["anchors"]
        for bucket, anchor in zip(context.buckets, self._anchors, strict=True):
            kept = [counts[param] for param in bucket.params if param in counts]
            if counts:  # An anchor of new parameters alone takes the counts of any other anchor.
                zeros = {name: torch.zeros_like(anchor.data) for name in elementwise}
                own = copy.deepcopy((kept or list(counts.values()))[0])
                self._outer.state[anchor].update(zeros | own)
        for name, flats in self.flats().items():
            copy_parts(parts_of(context.buckets, flats), before[name])

    def flats(self) -> dict[str, list[Tensor]]:
        states = [self._outer.state.get(anchor, {}) for anchor in self._anchors]
        return {"anchors": [anchor.data for anchor in self._anchors]} | {
            name: [state[name] for state in states] for name in _names(states, self._anchors)
        }

    def memory(self) -> dict[str, Any]:
        return {
            "anchors": [anchor.data for anchor in self._anchors],
            "outer": self._outer.state_dict(),
            "steps": self._steps if self._has_anchors else None,
        }

    def _counts(self) -> dict[Parameter, dict[str, Any]]:
        """Return what the outer optimizer keeps for a whole anchor, such as its steps."""
        flats = self.flats()
        counts = {}
        for bucket, anchor in zip(self.context.buckets, self._anchors, strict=True):
            state = self._outer.state.get(anchor, {})
            kept = {name: value for name, value in state.items() if name not in flats}
            counts.update(dict.fromkeys(bucket.params, kept) if state else {})
        return counts

    def recall(self, memory: Mapping[str, Any]) -> None:
        for anchor, saved in zip(self._anchors, memory["anchors"], strict=True):
            copy_alike(anchor.data, saved)
        self._outer.load_state_dict(memory["outer"])
        self._steps, self._has_anchors = memory["steps"] or 0, memory["steps"] is not None
        self._are_alike = False  # Each rank has loaded its own anchors.

    def leave(self) -> None:
        super().leave()
        self._has_anchors = False  # The old anchors would pull the new parameters back.
        self._are_alike = False  # The program may load other parameters on each rank.

    def prepare(self) -> None:
        if not self._has_anchors:  # The program may have broadcast parameters until now.
            self._has_anchors = True
            for anchor, flat in zip(self._anchors, self.context.parameters(), strict=True):
                anchor.data.copy_(flat)

    def step(self, update: Update) -> None:
        update()
        self._steps += 1
        if self._steps % self.context.every:
            return
        flats, anchors = self.context.parameters(), [anchor.data for anchor in self._anchors]
        self.context.exchange(flats, *([] if self._are_alike else [anchors])).finish()
        is_any_frozen = any(not p.requires_grad for b in self.context.buckets for p in b.params)
        self._are_alike = self.context.communication.makes_alike and not is_any_frozen
        moves = [anchor.data - flat for flat, anchor in zip(flats, self._anchors, strict=True)]
        for param, move in parts_of(self.context.buckets, moves).items():
            if not param.requires_grad:
                move.zero_()  # The outer optimizer must remember nothing of a frozen parameter.
        for anchor, move in zip(self._anchors, moves, strict=True):
            anchor.grad = move
        self._outer.step()
        for flat, anchor in zip(flats, self._anchors, strict=True):
            flat.copy_(anchor)


def _names(states: Sequence[Mapping[str, Any]], anchors: Sequence[Parameter]) -> list[str]:
    """Return the names of the states that have a number for each element of every parameter."""
    return [
        name
        for name in (states[0] if states else {})
        if all(
            isinstance(state.get(name), torch.Tensor) and state[name].shape == anchor.shape
            for state, anchor in zip(states, anchors, strict=True)
        )
    ]
