"""This module forms compressed messages of tensors of one dimension, and reads them."""

from __future__ import annotations

import functools
from typing import Protocol

import torch
from torch import Tensor

# A device's kernels can form messages of these types.
_KNOWN = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


class Forms(Protocol):
    """This is the protocol of what turns tensors into messages of bytes, and back, on a device."""

    def narrow(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """Return a tensor in another floating type, clamped to that type's range."""

    def widen(self, message: Tensor, dtype: torch.dtype, like: Tensor) -> Tensor:
        """Return the tensor that `narrow` to that type has made a message of."""

    def quantize(self, tensor: Tensor, block: int) -> Tensor:
        """Return a float32 scale for each block of numbers, and then a byte for each number."""

    def dequantize(self, message: Tensor, like: Tensor, block: int) -> Tensor:
        """Return the tensor that `quantize` has made a message of."""

    def pick_largest(self, tensor: Tensor, count: int) -> Tensor:
        """Return the places of the largest numbers as int32, and then the numbers as float32."""

    def scatter(self, message: Tensor, like: Tensor) -> Tensor:
        """Return the tensor that `pick_largest` has made a message of, with zeros elsewhere."""


class Formulas:
    """Formulas form messages by torch's operations, on any device."""

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
    """Return a tensor in another type, clamped to its range, by way of float32 as kernels do."""
    most = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    return tensor.float().clamp(-most, most).to(dtype)


def forms_of(tensor: Tensor, *others: torch.dtype) -> Forms:
    """Return kernels if there are some for the tensor and these types, and otherwise formulas."""
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
