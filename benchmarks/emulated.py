"""This module makes a net that computes on a device which these machines lack, by sleeping."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


class Device:
    """A Device does what it is given one after the other, from the begin of the forward pass on.

    The computing that the cores do meanwhile is a part of that time, and is not added to it. The
    training's thread uses the device.
    """

    def __init__(self) -> None:
        self.is_on = True
        self._free_at = 0.0

    def begin(self) -> None:
        self._free_at = time.perf_counter()

    def take(self, seconds: float) -> None:
        if self.is_on:
            self._free_at += seconds
            time.sleep(max(0.0, self._free_at - time.perf_counter()))

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Let what is computed in the block take no time of the device's."""
        self.is_on = False
        yield
        self.is_on = True


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Device, seconds: float) -> Tensor:
        ctx.device, ctx.seconds = device, seconds
        device.take(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.device.take(2 * ctx.seconds)
        return grad, None, None


class _On(nn.Module):
    """A layer of this kind takes its time on the device, twice as long backward as forward."""

    def __init__(self, device: Device, seconds: float) -> None:
        super().__init__()
        self.device, self.seconds = device, seconds

    def forward(self, x: Tensor) -> Tensor:
        return _Take.apply(x, self.device, self.seconds) if self.seconds else x


def make_net(width: int, seconds: float) -> tuple[nn.Module, Device]:
    """Return a perceptron on 8 x 8 digits whose step computes for `seconds`, and its device."""
    torch.manual_seed(0)
    # Each of three layers computes one part forward and two backward.
    device, each = Device(), seconds / 9
    net = nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, width), _On(device, each), nn.ReLU()),
        *(nn.Linear(width, width), _On(device, each), nn.ReLU()),
        *(nn.Linear(width, 10), _On(device, each)),
    )
    net.register_forward_pre_hook(lambda *_: device.begin())
    return net, device
