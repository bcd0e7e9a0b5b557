"""This module has compressors: their messages take fewer bytes than the tensors they stand for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from bluefog_pg.optim.messages import forms_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Compressor(Protocol):
    """A Compressor turns tensors into messages and back; this is its protocol.

    A compressor belongs to one optimizer. Messages have the same size for tensors of the same shape
    and dtype. Later messages make up for what one leaves out (see `gamma`).

    Thread safety: the optimizer calls it from the threads of step() and backward(), one call at a
    time. It owns whatever it remembers between messages.

    Example:
        >>> import torch
        >>> class Signs:  # One byte says the sign of a number.
        ...     gamma = 0.5
        ...     def compress(self, tensor):
        ...         return tensor.sign().to(torch.int8).view(torch.uint8)
        ...     def decompress(self, message, like):
        ...         return message.view(torch.int8).to(like.dtype)
        >>> signs, x = Signs(), torch.tensor([2.0, -3.0])
        >>> signs.decompress(signs.compress(x), like=x).tolist()
        [1.0, -1.0]
    """

    # At each step, parameters go this fraction of the way to the average of what was sent. It is
    # below 1 for a compressor that sends little, so that parameters do not outrun what was sent.
    gamma: float

    def compress(self, tensor: Tensor) -> Tensor:
        """Return the message of a tensor of one dimension: bytes (uint8)."""

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        """Return the tensor that the message stands for; it has the shape and dtype of `like`."""


class Cast:
    """Send each number in another floating type: float16 or bfloat16.

    Thread safety: any thread may use it. It owns nothing.

    Args:
        dtype: the type of the numbers in messages.

    Raises:
        ValueError: `dtype` is no floating type of at most 4 bytes.

    Example:
        >>> x = torch.tensor([1.0, 1.0009765625, 3.14159])
        >>> half = bf.optim.Cast(torch.float16)
        >>> message = half.compress(x)
        >>> message.nbytes, half.decompress(message, like=x).tolist()
        (6, [1.0, 1.0009765625, 3.140625])
    """

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
    """Send each number in a byte, and a float32 scale for each block of numbers.

    Thread safety: any thread may use it. It owns nothing.

    Args:
        block: how many numbers share a scale.

    Raises:
        ValueError: `block` is not positive.

    Example:
        >>> x = torch.tensor([1.0, -0.5, 0.25, 127.0])
        >>> int8 = bf.optim.Int8()
        >>> message = int8.compress(x)
        >>> message.nbytes, int8.decompress(message, like=x).tolist()
        (260, [1.0, 0.0, 0.0, 127.0])
    """

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
    """_Sparse is the base of compressors that send some numbers, in float32; the others count as 0.

    Averages were measured over rings, exponential and complete graphs of 4 and 8 ranks. With the
    largest numbers they converge fastest if gamma is near 2 * ratio, and with random ones if it is
    near ratio / 2. From 4 times as much on for the largest, and 2 times as much for random ones,
    they do not converge.
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
    """Send the largest numbers, and where they are.

    Thread safety: any thread may use it. It owns nothing: the optimizer keeps what was not sent.

    Args:
        ratio: the part of the numbers to send; each takes 8 bytes.
        gamma: see `Compressor`; None, one that suits the ratio.

    Raises:
        ValueError: `ratio` or `gamma` is not in (0, 1].

    Example:
        >>> x = torch.tensor([1.0, -8.0, 2.0, 4.0])
        >>> largest = bf.optim.TopK(ratio=0.5)
        >>> message = largest.compress(x)
        >>> message.nbytes, largest.decompress(message, like=x).tolist()
        (16, [0.0, -8.0, 0.0, 4.0])
    """

    def __init__(self, ratio: float, gamma: float | None = None) -> None:
        super().__init__(ratio, min(1.0, 2 * ratio) if gamma is None else gamma)

    def compress(self, tensor: Tensor) -> Tensor:
        if tensor.numel() > torch.iinfo(torch.int32).max:
            raise ValueError(
                f"[bluefog] TopK: a bucket has {tensor.numel()} numbers, more than int32 can "
                "index; RandomK has no such limit"
            )
        return forms_of(tensor).pick_largest(tensor, self._count(tensor))

    def decompress(self, message: Tensor, like: Tensor) -> Tensor:
        return forms_of(like).scatter(message, like)


class RandomK(_Sparse):
    """Send random ones of the numbers, and the seed of the choice instead of where they are.

    Thread safety: one thread at a time may use it, since each message changes the seed. It owns
    that seed; give each optimizer its own.

    Args:
        ratio: the part of the numbers to send; each takes 4 bytes.
        gamma: see `Compressor`; None, one that suits the ratio.
        seed: seeds the first choice; each message makes another one.

    Raises:
        ValueError: `ratio` or `gamma` is not in (0, 1].

    Example:
        >>> x = torch.ones(8)
        >>> some = bf.optim.RandomK(ratio=0.5)
        >>> message = some.compress(x)
        >>> message.nbytes, some.decompress(message, like=x).sum().item()
        (24, 4.0)
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
