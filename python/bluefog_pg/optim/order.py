"""When parameters are averaged: before the optimizer's own update, after it, or their gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

from bluefog_pg import collectives
from bluefog_pg.optim.bucket import views_of

if TYPE_CHECKING:
    import torch.distributed as dist

    from bluefog_pg.optim.bucket import Bucket
    from bluefog_pg.optim.communication import Communication, Finish

Update = Callable[[], None]


class Order:
    """What an optimizer does around its own update; this one, nothing: each rank by itself."""

    watches_backward = False  # `gradient` and `backward` are called

    def forward(self) -> None:
        """The model begins a forward pass of its training."""

    def gradient(self, param: Parameter) -> None:
        """A backward pass has added to the parameter's gradient all that it will."""

    def backward(self) -> None:
        """A backward pass ends."""

    def synchronize(self) -> None:
        """Wait for what is under way."""

    def step(self, update: Update) -> None:
        """`update` is the optimizer's own step."""
        update()


class Exchange:
    """One communication of all buckets."""

    def __init__(self, communication: Communication, buckets: list[Bucket]) -> None:
        communication.advance()
        for bucket in buckets:
            bucket.gather()
        self._ends: list[Finish] = [communication.begin(bucket) for bucket in buckets]

    def finish(self) -> None:
        while self._ends:
            self._ends.pop(0)()


class AdaptWithCombine(Order):
    """w <- average(w) - the update at w. The average is formed while gradients are.

    Decentralized gradient descent (D-PSGD: Lian et al., NeurIPS 2017).
    """

    def __init__(
        self, communication: Communication, buckets: list[Bucket], every: int, by_forward: bool
    ) -> None:
        """`by_forward`: the model tells of its forward passes."""
        self._communication, self._buckets, self._every = communication, buckets, every
        self._by_forward = by_forward
        self._forwards = 0
        self._exchange: Exchange | None = None

    def forward(self) -> None:
        if self._exchange is not None:
            _warn_of_forward()
            return  # gradients may still be formed at these parameters
        self._forwards += 1
        if self._forwards >= self._every:
            self._begin()

    def synchronize(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.finish()

    def step(self, update: Update) -> None:
        if not self._by_forward:
            self.forward()
        self.synchronize()
        update()

    def _begin(self) -> None:
        self._forwards = 0
        self._exchange = Exchange(self._communication, self._buckets)


class AdaptThenCombine(Order):
    """w <- average(w - the update at w): diffusion (Chen and Sayed, 2012)."""

    def __init__(self, communication: Communication, buckets: list[Bucket], every: int) -> None:
        self._communication, self._buckets, self._every = communication, buckets, every
        self.watches_backward = every > 1
        self._backwards = 0

    def backward(self) -> None:
        self._backwards += 1

    def step(self, update: Update) -> None:
        update()
        if self._every == 1 or self._backwards >= self._every:
            self._backwards = 0
            Exchange(self._communication, self._buckets).finish()


class GradientAverage(Order):
    """w <- w - the update by the mean of all ranks' gradients, as DistributedDataParallel does.

    The mean is there when backward returns: it is formed bucket by bucket meanwhile.
    """

    watches_backward = True

    def __init__(self, buckets: list[Bucket], every: int, group: dist.ProcessGroup | None) -> None:
        self._buckets, self._every, self._group = buckets, every, group
        self._bucket_of = {param: bucket for bucket in buckets for param in bucket.params}
        self._lacking: dict[Bucket, int] = {}
        self._ends: list[Finish] = []
        self._backwards = 0

    def gradient(self, param: Parameter) -> None:
        if self._backwards + 1 < self._every:
            return
        bucket = self._bucket_of[param]
        self._lacking[bucket] = self._lacking.get(bucket, len(bucket.params)) - 1
        # In one order, in which the other ranks begin them, too.
        while (begun := len(self._ends)) < len(self._buckets):
            if self._lacking.get(self._buckets[begun]) != 0:
                break
            self._ends.append(self._begin(self._buckets[begun]))

    def backward(self) -> None:
        self._backwards += 1
        if self._backwards < self._every:
            return
        self._backwards = 0
        ends = self._ends + [self._begin(bucket) for bucket in self._buckets[len(self._ends) :]]
        self._ends, self._lacking = [], {}
        for finish in ends:
            finish()

    def _begin(self, bucket: Bucket) -> Finish:
        work = collectives.allreduce(_flattened(bucket), group=self._group, async_op=True)

        def finish() -> None:
            work.wait()
            mean = work.result()[0]
            used = mean[-len(bucket.params) :].tolist()
            views = views_of(mean, bucket.params)
            for param, view, users in zip(bucket.params, views, used, strict=True):
                param.grad = view if users else None

        return finish


def _flattened(bucket: Bucket) -> Tensor:
    """The gradients, and for each parameter whether it has one."""
    count = bucket.flat.numel()
    flat = bucket.flat.new_zeros(count + len(bucket.params))
    views = views_of(flat, bucket.params)
    with torch.no_grad():
        for number, (param, view) in enumerate(zip(bucket.params, views, strict=True)):
            if param.grad is None:
                continue
            if param.grad.layout != torch.strided:
                raise ValueError(
                    f"[bluefog] a parameter of shape {list(param.shape)} has a sparse gradient, of "
                    "which there is no mean over ranks: average the parameters instead "
                    '(communication="neighbor_allreduce" or "allreduce"), or use sparse=False'
                )
            view.copy_(param.grad)
            flat[count + number] = 1
    return flat


def _warn_of_forward() -> None:
    warnings.warn(
        "[bluefog] Unexpected behavior: a forward pass more without a step(). To accumulate "
        "gradients over k passes use every=k (num_steps_per_communication=k)",
        stacklevel=2,
    )
