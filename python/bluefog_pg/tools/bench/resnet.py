"""This module has a small ResNet for images of 32 x 32 pixels, and random images for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

UNIT = "images"
_BATCH, _CLASSES, _PIXELS = 16, 10, 32
_WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """A Block adds two convolutions to what comes in."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.aside = nn.Identity() if stride == 1 else nn.Conv2d(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.aside(x))


def make() -> nn.Module:
    first = _WIDTHS[0]
    layers: list[nn.Module] = [nn.Conv2d(3, first, 3, padding=1, bias=False)]
    layers += [nn.BatchNorm2d(first), nn.ReLU()]
    for before, after in zip((first, *_WIDTHS), _WIDTHS, strict=False):
        layers.append(Block(before, after))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_WIDTHS[-1], _CLASSES)]
    return nn.Sequential(*layers)


def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random images and their random classes."""
    images = torch.randn(_BATCH, 3, _PIXELS, _PIXELS, generator=generator)
    return images, torch.randint(_CLASSES, (_BATCH,), generator=generator)
