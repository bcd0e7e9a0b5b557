"""Averages of gradients."""

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
    """w <- w - the update by the mean of all ranks' gradients, as DistributedDataParallel does.

    The mean is there when backward returns: it is formed bucket by bucket meanwhile.
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
        self._is_kept = True  # what the exchange under way gives

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
        self._forget_what_failed()  # where no forward pass has told of the next
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
            exchange.finish()  # which leaves the parameters as they are

    def _forget_what_failed(self) -> None:
        """The mean of a pass that did not end is no gradient of the next one."""
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
    """The gradients in one tensor, a new one or the given one's beginning; 0 where there is none.

    Raises:
        ValueError: one is sparse.
    """
    flat = torch.zeros_like(bucket.flat) if flat is None else flat
    for param, view in zip(bucket.params, bucket.views(flat), strict=True):
        if param.grad is None:
            continue
        if param.grad.layout != torch.strided:
            raise ValueError(
                f"[bluefog] a parameter of shape {list(param.shape)} has a sparse gradient, of "
                "which ranks exchange none: average parameters "
                '(communication="neighbor_allreduce" or "allreduce"), or use sparse=False'
            )
        view.copy_(param.grad)
    return flat


def set_gradient(bucket: Bucket, flat: Tensor) -> None:
    """Replace the gradients of the parameters, but for those that are frozen."""
    for param, view in zip(bucket.params, bucket.views(flat), strict=True):
        if not param.requires_grad:
            continue
        if param.grad is None:
            param.grad = view.to(param.dtype, copy=True)
        else:
            param.grad.copy_(view)


def _with_users(bucket: Bucket) -> Tensor:
    """The gradients, and for each parameter whether it has one."""
    count = bucket.flat.numel()
    flat = flat_gradient(bucket, bucket.flat.new_zeros(count + len(bucket.params)))
    flat[count:] = flat.new_tensor([param.grad is not None for param in bucket.params])
    return flat
