"""This module has the base of algorithms, and the one that averages after the update."""

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
    """An Algorithm does what an optimizer does around its update; this base does nothing.

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

    communications: tuple[str, ...] = AVERAGES  # names of the communications that it works with
    meets = True  # whether its averages wait for those of other ranks
    exchanges_at_each_pass = False  # whether it exchanges at each pass, so that `every` must be 1
    takes_compression = True
    takes_weights = True  # whether it uses the weights of a topology's edges
    # The weights must have this property, or the algorithm does not end at the right solution.
    needs: Literal["", "symmetric", "doubly stochastic"] = ""
    is_for_sgd = False  # whether it assumes that updates are linear in the gradient
    reads_gradients = False  # whether it reads gradients and replaces them by others
    watches_backward = False  # whether `gradient` and `backward` must be called
    has_updated = False  # whether a backward pass has made the update before step()
    takes_closures = True  # whether its update may call the program's closure, and differentiate
    update_differentiates = False  # whether the update of this step differentiates
    context: Context
    _exchange: Exchange | None = None  # the exchange that is under way

    @property
    def site(self) -> Context:
        """Return `context`, by its earlier name, which programs' own algorithms may use."""
        return self.context

    @site.setter
    def site(self, context: Context) -> None:
        self.context = context

    def open(self, context: Context) -> None:
        """Work on the context's buckets from now on, and begin without any memory."""
        self.context = context

    def forward(self) -> None:
        """Note that the model begins a forward pass of its training."""

    def gradient(self, param: Parameter) -> None:
        """Note that a backward pass has added all that it will to the parameter's gradient."""

    def backward(self) -> None:
        """Note that a backward pass ends."""

    def synchronize(self) -> None:
        """Wait for the exchange that is under way."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.finish()
            # Autograd must refuse to form gradients at the parameters from before the average.
            for bucket in self.context.buckets:
                torch.autograd.graph.increment_version(bucket.params)

    def settle(self) -> None:
        """Wait for what is under way, and begin nothing, as other ranks may not make this call."""
        self.synchronize()

    def skip(self) -> None:
        """Note that the next step is the optimizer's own alone."""

    def abandon(self) -> None:
        """End what is under way before the buckets change; drop what can be averaged again."""
        self.synchronize()

    def leave(self) -> None:
        """End what is under way before the program replaces the parameters."""
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

        They are the tensors that it works with, not copies.
        """
        return {}

    def memory(self) -> dict[str, Any]:
        """Return by name all that it must know when training is resumed."""
        return dict(self.flats())

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Go on from what `memory` has returned before.

        Raises:
            KeyError, ValueError: the memory belongs to other buckets.
        """
        for name, tensors in self.memory().items():
            for mine, saved in zip(tensors, memory[name], strict=True):
                copy_alike(mine, saved)

    def close(self) -> None:
        """Leave the buckets. All ranks make this call."""
        self.settle()

    def prepare(self) -> None:
        """Begin a step, and remember what is needed of the parameters as they are now."""

    def step(self, update: Update) -> None:
        """Make a step around `update`, which is the optimizer's own step."""
        update()


class CountsPasses(Algorithm):
    """CountsPasses is the base of algorithms that exchange once in `every` backward passes."""

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
        """Return whether this step exchanges. Each step must ask once, as that resets the count."""
        if self.context.every > 1 and self._backwards < self.context.every:
            return False
        self._backwards = 0
        return True


class AdaptThenCombine(CountsPasses):
    """Do w <- average(w - the update at w), which is diffusion (Chen and Sayed, 2012).

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
        if self._readiness.is_under_way:  # The last pass has failed before its end.
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
        if self._readiness.is_under_way:  # The last pass has failed before its end.
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
    """Copy the parts of the parameters that are in both mappings."""
    for param in mine.keys() & saved.keys():
        mine[param].copy_(saved[param])


def copy_alike(mine: Tensor, saved: Tensor) -> None:
    """Copy a saved tensor to ours; raise ValueError if the two differ in shape."""
    if mine.shape != saved.shape:
        raise ValueError(f"{list(saved.shape)} is not {list(mine.shape)}")
    mine.copy_(saved)
