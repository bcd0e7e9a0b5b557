"""How messages are formed of tensors of one dimension, and read."""

from __future__ import annotations

import functools
from typing import Protocol

import torch
from torch import Tensor

# Of which a device's kernels know the messages.
_KNOWN = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


class Forms(Protocol):
    """Bytes in place of numbers, on their device."""

    def narrow(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """In another floating type; what is beyond its range becomes its largest number."""

    def widen(self, message: Tensor, dtype: torch.dtype, like: Tensor) -> Tensor:
        """What `narrow` to that type has left of a tensor that is like this one."""

    def quantize(self, tensor: Tensor, block: int) -> Tensor:
        """A float32 scale for each block of numbers, and a byte for each number."""

    def dequantize(self, message: Tensor, like: Tensor, block: int) -> Tensor:
        """What `quantize` has left."""

    def pick_largest(self, tensor: Tensor, count: int) -> Tensor:
        """Where the largest numbers are, in int32, and they, in float32."""

    def scatter(self, message: Tensor, like: Tensor) -> Tensor:
        """What `pick_largest` has left: zeros elsewhere."""


class Formulas:
    """On any device."""

    def narrow(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return _limited(tensor, dtype).view(torch.uint8)

    def widen(self, message: Tensor, dtype: torch.dtype, like: Tensor) -> Tensor:
        return _limited(message.view(dtype), like.dtype)

    def quantize(self, tensor: Tensor, block: int) -> Tensor:
        padding = -tensor.numel() % block
        blocks = torch.nn.functional.pad(tensor.float(), (0, padding)).view(-1, block)
        scales = blocks.abs().amax(1, keepdim=True) / 127
        numbers = (blocks / scales.clamp_min(1e-38)).round_().to(torch.int8)
        return torch.cat([scales.view(-1).view(torch.uint8), numbers.view(-1).view(torch.uint8)])

    def dequantize(self, message: Tensor, like: Tensor, block: int) -> Tensor:
        count = -(-like.numel() // block)
        scales = message[: 4 * count].view(torch.float32).view(-1, 1)
        numbers = message[4 * count :].view(torch.int8).view(-1, block)
        return (numbers * scales).view(-1)[: like.numel()].to(like.dtype)

    def pick_largest(self, tensor: Tensor, count: int) -> Tensor:
        _, places = tensor.abs().topk(count, sorted=False)
        numbers = tensor[places].float()
        return torch.cat([places.int().view(torch.uint8), numbers.view(torch.uint8)])

    def scatter(self, message: Tensor, like: Tensor) -> Tensor:
        places, numbers = message.view(2, -1)
        return torch.zeros_like(like).scatter_(
            0, places.view(torch.int32).long(), numbers.view(torch.float32).to(like.dtype)
        )


def _limited(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """By way of float32, as kernels do for types that are no wider."""
    most = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    return tensor.float().clamp(-most, most).to(dtype)


def forms_of(tensor: Tensor, *others: torch.dtype) -> Forms:
    """By kernels, where there are some for that tensor and these types."""
    if tensor.device.type == "cpu" or not _KNOWN.issuperset((tensor.dtype, *others)):
        return Formulas()
    return _by_kernels(tensor.device.type) or Formulas()


@functools.cache
def _by_kernels(device: str) -> Forms | None:
    from bluefog_pg._core import accelerator as accelerators
    from bluefog_pg._core.loader import load

    accelerator = accelerators.found()
    if accelerator is None or accelerator.device != device:
        return None
    messages = load().MessageKernels(accelerator.plugin)
    return None if messages.reason else messages
