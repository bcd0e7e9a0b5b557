"""This module has a small GPT, and random tokens for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

UNIT = "sequences"
_BATCH, _CONTEXT, _TOKENS = 8, 64, 512
_WIDTH, _HEADS, _LAYERS = 128, 4, 3


class Block(nn.Module):
    """A Block adds causal attention, and then a perceptron, to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_perceptron = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.attention = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.out = nn.Linear(_WIDTH, _WIDTH)
        self.perceptron = nn.Sequential(
            nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.before_attention(x))
        out: Tensor = x + self.perceptron(self.before_perceptron(x))
        return out

    def attend(self, x: Tensor) -> Tensor:
        heads = self.attention(x).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind()
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class GPT(nn.Module):
    """A GPT predicts each token from those before it. Its output has a row for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_TOKENS, _WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(_CONTEXT, _WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(_LAYERS)))
        self.norm, self.head = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _TOKENS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.blocks(self.tokens(tokens) + self.places)
        out: Tensor = self.head(self.norm(hidden)).flatten(0, 1)
        return out


def make() -> nn.Module:
    return GPT()


def batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random sequences, and the token that follows each of their tokens."""
    tokens = torch.randint(_TOKENS, (_BATCH, _CONTEXT + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:].flatten()
