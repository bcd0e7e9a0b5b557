"""When parameters are averaged: while gradients are formed, or after the own update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

from bluefog_pg.optim.ready import Ready

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from bluefog_pg.optim.site import Exchange, Site

Update = Callable[[], None]
AVERAGES = ("neighbor_allreduce", "hierarchical_neighbor_allreduce", "allreduce")
WINDOWS = ("win_put", "win_get")


class Order:
    """What an optimizer does around its own update; this one, nothing: each rank by itself."""

    communications: tuple[str, ...] = AVERAGES  # that it goes with
    exchanges_at_each_pass = False  # so that `every` has to be 1
    takes_compression = True
    takes_weights = True  # those of a topology's edges
    needs: Literal["", "symmetric", "doubly stochastic"] = ""  # of weights, to end where it should
    is_for_sgd = False  # takes updates for linear in the gradient
    reads_gradients = False  # and forms others of them
    watches_backward = False  # whether `gradient` and `backward` are to be called
    has_updated = False  # in a backward pass, before step()
    site: Site
    _exchange: Exchange | None = None  # under way

    def open(self, site: Site) -> None:
        """Work on these buckets from now on, as if nothing had been before."""
        self.site = site

    def forward(self) -> None:
        """The model begins a forward pass of its training."""

    def gradient(self, param: Parameter) -> None:
        """A backward pass has added to the parameter's gradient all that it will."""

    def backward(self) -> None:
        """A backward pass ends."""

    def synchronize(self) -> None:
        """Wait for what is under way."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.finish()
            for bucket in self.site.buckets:  # gradients at what was before would be wrong
                torch.autograd.graph.increment_version(bucket.params)

    def leave(self) -> None:
        """The program is about to replace the parameters: what is under way ends before."""
        self.synchronize()

    def memory(self) -> dict[str, Any]:
        """What it has to know when training is resumed: by name, tensors, of which each is its own.

        The tensors are those that it works with.
        """
        return {}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from what `memory` gave.

        Raises:
            KeyError, ValueError: that was of other buckets.
        """
        for name, tensors in self.memory().items():
            for mine, saved in zip(tensors, memory[name], strict=True):
                copy_alike(mine, saved)

    def close(self) -> None:
        """The buckets are these no more. All ranks do."""
        self.synchronize()

    def step(self, update: Update) -> None:
        """`update` is the optimizer's own step."""
        update()


class CountsPasses(Order):
    """Exchanges once in `every` backward passes."""

    def open(self, site: Site) -> None:
        super().open(site)
        self.watches_backward = site.every > 1
        self._backwards = 0

    def backward(self) -> None:
        self._backwards += 1

    def _is_due(self) -> bool:
        """Asked once in a step."""
        if self.site.every > 1 and self._backwards < self.site.every:
            return False
        self._backwards = 0
        return True


class AdaptWithCombine(CountsPasses):
    """w <- average(w) - the update at w. The average is formed while gradients are.

    Decentralized gradient descent (D-PSGD: Lian et al., NeurIPS 2017).
    """

    communications: tuple[str, ...] = (*AVERAGES, *WINDOWS)

    def open(self, site: Site) -> None:
        super().open(site)
        self._has_heard = False

    def forward(self) -> None:
        self._has_heard = True
        self._begin_if_due(self._backwards + 1)

    def step(self, update: Update) -> None:
        if not self._has_heard:
            self.site.warn_of_no_forward()
            self._begin_if_due(max(1, self._backwards))
        self._has_heard = False
        self.synchronize()
        update()

    def synchronize(self) -> None:
        if self._exchange is not None:
            self._backwards = 0
        super().synchronize()

    def _begin_if_due(self, passes: int) -> None:
        """Unless gradients may still be formed at these parameters, by one more pass of a step."""
        if self._exchange is None and passes >= self.site.every:
            self._begin()

    def _begin(self) -> None:
        self._exchange = self.site.exchange(*self._exchanged())

    def _exchanged(self) -> list[list[Tensor]]:
        return [self.site.parameters()]


class AdaptThenCombine(CountsPasses):
    """w <- average(w - the update at w): diffusion (Chen and Sayed, 2012).

    Args:
        in_backward: update each bucket, and begin its average, as soon as backward() has formed its
            gradients; step() waits for the averages. For optimizers in which the update of a
            parameter depends on that alone, and loops that do nothing to gradients between
            backward() and step(): no clipping, no GradScaler.
    """

    communications: tuple[str, ...] = (*AVERAGES, *WINDOWS)

    def __init__(self, in_backward: bool = False) -> None:
        self._in_backward = in_backward

    def open(self, site: Site) -> None:
        super().open(site)
        self.watches_backward |= self._in_backward
        self._ready = Ready([bucket.params for bucket in site.buckets], self._adapt)

    @property
    def has_updated(self) -> bool:  # type: ignore[override]
        return self._exchange is not None

    def forward(self) -> None:
        if self._ready.is_under_way:  # the pass has failed in its midst
            self.synchronize()
            self._ready.restart()

    @torch.no_grad()
    def gradient(self, param: Parameter) -> None:
        if not self._in_backward or self._backwards + 1 < self.site.every:
            return
        if self._exchange is not None and not self._ready.is_under_way:
            raise RuntimeError(
                f"{self.site.member.who} DistributedOptimizer: a second backward() before step(): "
                "AdaptThenCombine(in_backward=True) has made its update in the first one. To "
                "accumulate gradients over k passes use every=k"
            )
        self._ready.gradient(param)

    @torch.no_grad()
    def backward(self) -> None:
        super().backward()
        if self._in_backward and self._backwards >= self.site.every:
            self._ready.end()

    def step(self, update: Update) -> None:
        has_updated = self.has_updated
        if not has_updated:
            update()
        if self._is_due():
            if not has_updated:
                self._exchange = self.site.exchange(self.site.parameters())
            self.synchronize()

    def _adapt(self, number: int) -> None:
        if self._exchange is None:
            self._exchange = self.site.exchange()
        bucket = self.site.buckets[number]
        self.site.update(bucket.params)
        bucket.gather()
        self._exchange.add(self.site.begin(bucket.flat, number))


def copy_alike(mine: Tensor, saved: Tensor) -> None:
    """Raise ValueError where they are not."""
    if mine.shape != saved.shape:
        raise ValueError(f"{list(saved.shape)} is not {list(mine.shape)}")
    mine.copy_(saved)
