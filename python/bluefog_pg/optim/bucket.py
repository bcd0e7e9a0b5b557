"""This module puts parameters one after the other into one tensor, which travels as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import Parameter

LIMIT = 25 << 20  # the size of a bucket in bytes, as in DistributedDataParallel


class Bucket:
    """A Bucket owns flat memory, and moves parameters into it; each stays the object that it is."""

    def __init__(self, params: Sequence[Parameter]) -> None:
        """Move the parameters in, which must have one type and lie on one device."""
        self.params = tuple(params)
        self.flat = params[0].new_empty(sum(param.numel() for param in params)).detach()
        # Each parameter keeps its present layout, which is dense, but may not be contiguous.
        self._strides = [torch.empty_like(param, device="meta").stride() for param in params]
        self._shapes = [param.shape for param in params]
        self._places = self.views(self.flat)
        self.gather()

    def views(self, flat: Tensor) -> list[Tensor]:
        """Return each parameter's part of a tensor that has as many elements, or more."""
        views, begin = [], flat.storage_offset()
        for shape, strides in zip(self._shapes, self._strides, strict=True):
            views.append(flat.as_strided(shape, strides, begin))
            begin += shape.numel()
        return views

    def gather(self) -> None:
        """Move parameters back in that have got other memory, as by `param.data = ...`.

        Raises:
            ValueError: a parameter has got another shape.
        """
        for param, place in zip(self.params, self._places, strict=True):
            if param.shape != place.shape:
                raise ValueError(
                    f"[bluefog] a parameter of shape {list(place.shape)} has got the shape "
                    f"{list(param.shape)}: make a new optimizer for it"
                )
            if param.data_ptr() != place.data_ptr():
                with torch.no_grad():
                    place.copy_(param)
                param.data = place

    def scatter(self) -> None:
        """Give each parameter memory of its own."""
        for param in self.params:
            param.data = param.data.clone()


def parted(params: Iterable[Parameter], limit: float = LIMIT) -> list[list[Parameter]]:
    """Return the parameters of each bucket, of at most `limit` bytes unless one alone is larger.

    The first bucket has the last parameters, whose gradients come first.
    """

    def kind(param: Parameter) -> tuple[str, str]:
        return str(param.device), str(param.dtype)

    backwards = [param for param in params if param.numel()][::-1]
    backwards.sort(key=kind)
    return [part for _, alike in groupby(backwards, kind) for part in _cut(alike, limit)]


def parts_of(buckets: Sequence[Bucket], flats: Sequence[Tensor]) -> dict[Parameter, Tensor]:
    """Return each parameter's part of tensors with the buckets' shapes, which are views."""
    return {
        param: part
        for bucket, flat in zip(buckets, flats, strict=True)
        for param, part in zip(bucket.params, bucket.views(flat), strict=True)
    }


def _cut(params: Iterable[Parameter], limit: float) -> Iterable[list[Parameter]]:
    part: list[Parameter] = []
    size = 0
    for param in params:
        if part and size + param.nbytes > limit:
            yield part
            part, size = [], 0
        part.append(param)
        size += param.nbytes
    if part:
        yield part
