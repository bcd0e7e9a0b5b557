"""Orders of an optimizer: averages come while gradients are formed, or after the own update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

from bluefog_pg.optim.bucket import parts_of
from bluefog_pg.optim.bucket_readiness import BucketReadiness

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from bluefog_pg.optim.context import Context
    from bluefog_pg.optim.exchange import Exchange

Update = Callable[[], None]
AVERAGES = ("neighbor_allreduce", "hierarchical_neighbor_allreduce", "allreduce")
WINDOWS = ("win_put", "win_get")


class Algorithm:
    """The part of an optimizer around its own update; this base class leaves each rank alone.

    Its subclasses are the algorithms of this package. A program hands one to `DistributedOptimizer`
    as `order`; the optimizer calls the methods.

    Thread safety: the optimizer calls it from the threads of step() and backward(), one call at a
    time. A subclass owns what it remembers of parameters (`flats`).

    Example:
        >>> w = torch.nn.Parameter(torch.zeros(1))
        >>> sgd = torch.optim.SGD([w], lr=0.5)
        >>> optimizer = bf.DistributedOptimizer(sgd, [], order=bf.optim.Order())
        >>> (w * bf.rank()).sum().backward()
        >>> optimizer.step()
        >>> w.item() == -0.5 * bf.rank()
        True
    """

    communications: tuple[str, ...] = AVERAGES  # that it goes with
    meets = True  # its averages wait for those of other ranks
    exchanges_at_each_pass = False  # so that `every` has to be 1
    takes_compression = True
    takes_weights = True  # those of a topology's edges
    needs: Literal["", "symmetric", "doubly stochastic"] = ""  # of weights, to end where it should
    is_for_sgd = False  # takes updates for linear in the gradient
    reads_gradients = False  # and forms others of them
    watches_backward = False  # whether `gradient` and `backward` are to be called
    has_updated = False  # in a backward pass, before step()
    takes_closures = True  # its update may be handed the program's closure, and differentiate
    update_differentiates = False  # in this step
    context: Context
    _exchange: Exchange | None = None  # under way

    @property
    def site(self) -> Context:
        """The earlier name of `context`, which algorithms of programs may have."""
        return self.context

    def open(self, context: Context) -> None:
        """Work on these buckets from now on, as if nothing had been before."""
        self.context = context

    def forward(self) -> None:
        """Note that the model begins a forward pass of its training."""

    def gradient(self, param: Parameter) -> None:
        """Note that a backward pass has added all that it will to the parameter's gradient."""

    def backward(self) -> None:
        """Note that a backward pass ends."""

    def synchronize(self) -> None:
        """Wait for what is under way."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.finish()
            for bucket in self.context.buckets:  # gradients at what was before would be wrong
                torch.autograd.graph.increment_version(bucket.params)

    def settle(self) -> None:
        """Wait for what is under way, and begin nothing: other ranks may not do this."""
        self.synchronize()

    def skip(self) -> None:
        """Note that the next step is the optimizer's own alone."""

    def abandon(self) -> None:
        """Note that the buckets get other parameters: drop an average that can be made again."""
        self.synchronize()

    def leave(self) -> None:
        """End what is under way: the program is about to replace the parameters."""
        self.settle()

    def reopen(self, context: Context) -> None:
        """Work on other buckets from now on, most of whose parameters are the same.

        The memory of a parameter moves with it. The memory of a new one begins with zeros.
        """
        before = {name: parts_of(self.context.buckets, kept) for name, kept in self.flats().items()}
        self.open(context)
        for name, flats in self.flats().items():
            copy_parts(parts_of(context.buckets, flats), before.get(name, {}))

    def flats(self) -> dict[str, list[Tensor]]:
        """Return what it remembers of each parameter: by name, tensors of the buckets' shapes.

        They are the tensors that it works with, no copies.
        """
        return {}

    def memory(self) -> dict[str, Any]:
        """Return all that it has to know when training is resumed, by name."""
        return dict(self.flats())

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from what `memory` gave.

        Raises:
            KeyError, ValueError: the memory is of other buckets.
        """
        for name, tensors in self.memory().items():
            for mine, saved in zip(tensors, memory[name], strict=True):
                copy_alike(mine, saved)

    def close(self) -> None:
        """Leave the buckets. All ranks do."""
        self.settle()

    def prepare(self) -> None:
        """Begin a step: remember what is needed of parameters as they are now."""

    def step(self, update: Update) -> None:
        """Make a step; `update` is the optimizer's own step."""
        update()


class CountsPasses(Algorithm):
    """The base of orders that exchange once in `every` backward passes."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.watches_backward = context.every > 1
        self._backwards = 0

    def reopen(self, context: Context) -> None:
        backwards = self._backwards
        super().reopen(context)
        self._backwards = backwards

    def backward(self) -> None:
        self._backwards += 1

    def _is_due(self) -> bool:
        """Return whether this step exchanges; each step asks once."""
        if self.context.every > 1 and self._backwards < self.context.every:
            return False
        self._backwards = 0
        return True


class AdaptThenCombine(CountsPasses):
    """w <- average(w - the update at w): diffusion (Chen and Sayed, 2012).

    This is BlueFog's adapt-then-combine, and `order="atc"`.

    Thread safety: the optimizer calls it from the threads of step() and backward(). A program makes
    it and hands it over. It owns the averages that are under way; give each optimizer its own.

    Args:
        in_backward: update each bucket, and begin its average, as soon as backward() has formed its
            gradients; step() waits for the averages. The update of a parameter must then depend on
            that parameter alone, and the loop must do nothing to gradients between backward() and
            step(): no clipping, no GradScaler.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.5)
        >>> order = bf.optim.AdaptThenCombine(in_backward=True)
        >>> optimizer = bf.DistributedOptimizer(sgd, model, order=order, topology="full")
        >>> for _ in range(30):  # Rank r has the loss (w - r)^2 / 2; their sum is least at 1.5.
        ...     optimizer.zero_grad()
        ...     ((model(torch.ones(1, 1)) - bf.rank()) ** 2 / 2).sum().backward()
        ...     optimizer.step()
        >>> round(model.weight.item(), 3)
        1.5
    """

    communications: tuple[str, ...] = (*AVERAGES, *WINDOWS)

    def __init__(self, in_backward: bool = False) -> None:
        self._in_backward = in_backward
        self.takes_closures = not in_backward

    def open(self, context: Context) -> None:
        super().open(context)
        self.watches_backward |= self._in_backward
        self.has_updated = False
        self._readiness = BucketReadiness(
            [bucket.params for bucket in context.buckets], self._adapt
        )

    def reopen(self, context: Context) -> None:
        has_updated = self.has_updated
        super().reopen(context)
        self.has_updated = has_updated

    def forward(self) -> None:
        if self._readiness.is_under_way:  # the pass has failed in its midst
            self.synchronize()
            self._readiness.restart()
            self.has_updated = False

    @torch.no_grad()
    def gradient(self, param: Parameter) -> None:
        if not self._in_backward or self._backwards + 1 < self.context.every:
            return
        if self.has_updated and not self._readiness.is_under_way:
            raise RuntimeError(
                f"{self.context.member.who} DistributedOptimizer: a second backward() before "
                "step(): AdaptThenCombine(in_backward=True) has made its update in the first one. "
                "To accumulate gradients over k passes use every=k"
            )
        self._readiness.gradient(param)

    @torch.no_grad()
    def backward(self) -> None:
        super().backward()
        if self._in_backward and self._backwards >= self.context.every:
            self._readiness.end()

    def step(self, update: Update) -> None:
        if self._readiness.is_under_way:  # the pass has failed in its midst
            self._readiness.end()
            self._backwards = max(self._backwards, self.context.every)
        has_updated, self.has_updated = self.has_updated, False
        if not has_updated:
            update()
        if self._is_due():
            if not has_updated:
                self._exchange = self.context.exchange(self.context.parameters())
            self.synchronize()

    def skip(self) -> None:
        if self.has_updated:
            self.has_updated, self._backwards = False, 0

    def _adapt(self, number: int) -> None:
        self.has_updated = True
        if self._exchange is None:
            self._exchange = self.context.exchange()
        bucket = self.context.buckets[number]
        self.context.update(bucket.params)
        bucket.gather()
        self._exchange.add(self.context.begin(bucket.flat, number))


@torch.no_grad()
def copy_parts(mine: Mapping[Parameter, Tensor], saved: Mapping[Parameter, Tensor]) -> None:
    """Copy the parts of those parameters that are in both."""
    for param in mine.keys() & saved.keys():
        mine[param].copy_(saved[param])


def copy_alike(mine: Tensor, saved: Tensor) -> None:
    """Copy a tensor; raise ValueError where the two differ in shape."""
    if mine.shape != saved.shape:
        raise ValueError(f"{list(saved.shape)} is not {list(mine.shape)}")
    mine.copy_(saved)
