"""What is sent in place of a tensor, in fewer bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from bluefog_pg.optim.messages import forms_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Compressor(Protocol):
    """Of one optimizer. Messages are of the same size for tensors of the same shape and type."""

    # Of the way to the average of what was sent, how much parameters go at each step: below 1 where
    # little is sent, so that they do not outrun it.
    gamma: float

    def compress(self, tensor: Tensor) -> Tensor:
        """The message of a tensor of one dimension, in bytes."""

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        """What it says of a tensor that is like this one."""


class Cast:
    """Each number in another floating type: float16 or bfloat16."""

    gamma = 1.0

    def __init__(self, dtype: torch.dtype) -> None:
        if not dtype.is_floating_point or dtype.itemsize > 4:
            raise ValueError(f"[bluefog] Cast: dtype must be a narrow floating type, not {dtype}")
        self._dtype = dtype

    def compress(self, tensor: Tensor) -> Tensor:
        return forms_of(tensor, self._dtype).narrow(tensor, self._dtype)

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        return forms_of(like, self._dtype).widen(message, self._dtype, like)


class Int8:
    """Each number in a byte, and a float32 scale for each block of them."""

    gamma = 1.0

    def __init__(self, block: int = 256) -> None:
        if block < 1:
            raise ValueError(f"Int8: block must be positive, not {block}")
        self._block = block

    def compress(self, tensor: Tensor) -> Tensor:
        return forms_of(tensor).quantize(tensor, self._block)

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        return forms_of(like).dequantize(message, like, self._block)


class _Sparse:
    """Some of the numbers, in float32; the others count as 0.

    Measured over rings, exponential and complete graphs of 4 and 8 ranks: averages converge fastest
    with gamma near 2 ratio of the largest numbers, near ratio / 2 of random ones, and not at all
    from 4 and 2 times as much on.
    """

    def __init__(self, ratio: float, gamma: float) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"{type(self).__name__}: ratio must be in (0, 1], not {ratio}")
        if not 0 < gamma <= 1:
            raise ValueError(f"{type(self).__name__}: gamma must be in (0, 1], not {gamma}")
        self._ratio, self.gamma = ratio, gamma

    def _count(self, tensor: Tensor) -> int:
        return max(1, math.ceil(self._ratio * tensor.numel()))


class TopK(_Sparse):
    """The largest numbers, and where they are.

    Args:
        ratio: of the numbers; each takes 8 bytes.
        gamma: see `Compressor`; None, one that suits the ratio.
    """

    def __init__(self, ratio: float, gamma: float | None = None) -> None:
        super().__init__(ratio, min(1.0, 2 * ratio) if gamma is None else gamma)

    def compress(self, tensor: Tensor) -> Tensor:
        if tensor.numel() > torch.iinfo(torch.int32).max:
            raise ValueError(
                f"[bluefog] TopK: {tensor.numel()} numbers in one bucket, of which int32 does not "
                "tell the places; RandomK has no such limit"
            )
        return forms_of(tensor).pick_largest(tensor, self._count(tensor))

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        return forms_of(like).scatter(message, like)


class RandomK(_Sparse):
    """Random ones of the numbers; of where they are, only what the choice was made by.

    Args:
        ratio: of the numbers; each takes 4 bytes.
        gamma: see `Compressor`; None, one that suits the ratio.
        seed: of the first choice; each message has another one.
    """

    def __init__(self, ratio: float, gamma: float | None = None, seed: int = 0) -> None:
        super().__init__(ratio, ratio / 2 if gamma is None else gamma)
        self._seed = seed

    def compress(self, tensor: Tensor) -> Tensor:
        self._seed += 1
        seed = torch.tensor([self._seed], dtype=torch.int64, device=tensor.device)
        numbers = tensor[self._places(self._seed, tensor)].float()
        return torch.cat([seed.view(torch.uint8), numbers.view(torch.uint8)])

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        seed = int(message[:8].view(torch.int64))
        numbers = message[8:].view(torch.float32)
        return torch.zeros_like(like).scatter_(0, self._places(seed, like), numbers.to(like.dtype))

    def _places(self, seed: int, like: Tensor) -> Tensor:
        choice = torch.Generator().manual_seed(seed)
        places = torch.randperm(like.numel(), generator=choice, dtype=torch.int64, device="cpu")
        return places[: self._count(like)].to(like.device)


NAMED: dict[str, Callable[[], Compressor]] = {
    "fp16": lambda: Cast(torch.float16),
    "bf16": lambda: Cast(torch.bfloat16),
    "int8": Int8,
}
