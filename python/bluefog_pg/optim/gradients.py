"""This module averages gradients, and moves them into and out of flat tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bluefog_pg import collectives
from bluefog_pg._core.warning import warn
from bluefog_pg.optim.algorithm import Algorithm, Update
from bluefog_pg.optim.bucket_readiness import BucketReadiness
from bluefog_pg.optim.exchange import Exchange

if TYPE_CHECKING:
    from torch.nn import Parameter

    from bluefog_pg.optim.bucket import Bucket
    from bluefog_pg.optim.context import Context


class GradientAverage(Algorithm):
    """Update by the mean of all ranks' gradients, as DistributedDataParallel does.

    The mean is formed bucket by bucket during backward(), and is complete when that returns.
    """

    communications = ("gradient_allreduce",)
    watches_backward = True

    def open(self, context: Context) -> None:
        super().open(context)
        self._readiness = BucketReadiness(
            [bucket.params for bucket in context.buckets], self._begin
        )
        self._backwards = 0
        self._has_warned = False
        self._is_kept = True  # whether the mean that is under way becomes the gradient

    def reopen(self, context: Context) -> None:
        backwards = self._backwards
        super().reopen(context)
        self._backwards = backwards

    def forward(self) -> None:
        self._forget_what_failed()

    @torch.no_grad()
    def gradient(self, param: Parameter) -> None:
        if self._backwards + 1 == self.context.every:
            self._readiness.gradient(param)

    @torch.no_grad()
    def backward(self) -> None:
        self._backwards += 1
        if self._backwards == self.context.every:
            self._backwards = 0
            self._readiness.end()
            self.synchronize()

    def step(self, update: Update) -> None:
        self._forget_what_failed()  # A failed pass need not be followed by a forward pass.
        if self._backwards and not self._has_warned:
            self._has_warned = True
            warn(
                f"{self.context.member.who} DistributedOptimizer: step() after {self._backwards} "
                f"of every={self.context.every} backward passes: gradients are averaged in the "
                "last one alone, and ranks that step before it drift apart for good",
            )
        update()

    def synchronize(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.finish()  # changes no parameters, so autograd need not know

    def _forget_what_failed(self) -> None:
        """Drop the mean of a pass that did not end, which is no gradient of the next pass."""
        self._readiness.restart()
        self._is_kept = False
        self.synchronize()
        self._is_kept = True

    def _begin(self, number: int) -> None:
        self._exchange = self._exchange or Exchange(self.context.stats)
        bucket = self.context.buckets[number]
        group, flat = self.context.member.group, _with_users(bucket)
        work = collectives.allreduce(flat, group=group, async_op=True)

        def finish() -> None:
            work.wait()
            if not self._is_kept:
                return
            mean = work.result()[0]
            used = mean[-len(bucket.params) :].tolist()
            views = bucket.views(mean)
            for param, view, users in zip(bucket.params, views, used, strict=True):
                param.grad = view if users else None

        self._exchange.add(self.context.drawn("ALLREDUCE", number, lambda: finish))


def flat_gradient(bucket: Bucket, flat: Tensor | None = None) -> Tensor:
    """Return a bucket's gradients in one tensor, with zeros for parameters without a gradient.

    Args:
        bucket: the bucket.
        flat: a tensor of zeros, whose beginning gets the gradients; None, a new tensor.

    Raises:
        ValueError: a gradient is sparse.
    """
    flat = torch.zeros_like(bucket.flat) if flat is None else flat
    for param, view in zip(bucket.params, bucket.views(flat), strict=True):
        if param.grad is None:
            continue
        if param.grad.layout != torch.strided:
            raise ValueError(
                f"[bluefog] a parameter of shape {list(param.shape)} has a sparse gradient, "
                "and ranks exchange dense ones alone: average parameters "
                '(communication="neighbor_allreduce" or "allreduce"), or use sparse=False'
            )
        view.copy_(param.grad)
    return flat


def set_gradient(bucket: Bucket, flat: Tensor) -> None:
    """Replace the gradients of all parameters that are not frozen."""
    for param, view in zip(bucket.params, bucket.views(flat), strict=True):
        if not param.requires_grad:
            continue
        if param.grad is None:
            param.grad = view.to(param.dtype, copy=True)
        else:
            param.grad.copy_(view)


def _with_users(bucket: Bucket) -> Tensor:
    """Return the flat gradients, followed by a 1 or 0 for each parameter with or without one."""
    count = bucket.flat.numel()
    flat = flat_gradient(bucket, bucket.flat.new_zeros(count + len(bucket.params)))
    flat[count:] = flat.new_tensor([param.grad is not None for param in bucket.params])
    return flat
