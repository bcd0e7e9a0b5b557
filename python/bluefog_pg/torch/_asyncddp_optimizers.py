"""Asyncddp's optimizers and schedulers, for `DecentralizedDataParallel`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

from bluefog_pg.optim.accum_adam import AccumAdam, AccumAdamW

__all__ = [
    "AccumAdam",
    "AccumAdamW",
    "lr_scheduler_fn_cosine_with_warmup",
    "optim_fn_accum_adam",
    "optim_fn_accum_adamw",
    "optim_fn_adam",
    "optim_fn_adamw",
]

Named = Iterable[tuple[str, Parameter]]


def optim_fn_adam(
    params: Named,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    weight_decay: float = 1.0 / 32768,
    eps: float = 1e-8,
) -> Optimizer:
    """Adam. Biases, and what is called "bn", have no weight decay."""
    return Adam(_groups(params, weight_decay), lr=lr, betas=(beta1, beta2), eps=eps)


def optim_fn_adamw(
    params: Named,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    weight_decay: float = 0.1,
    eps: float = 1e-8,
) -> Optimizer:
    """AdamW. Biases, and what is called "bn", have no weight decay."""
    return AdamW(_groups(params, weight_decay), lr=lr, betas=(beta1, beta2), eps=eps)


def optim_fn_accum_adam(
    params: Named,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1.0 / 32768,
    accum_iter: int = 4,
) -> Optimizer:
    """`AccumAdam`. Biases, and what is called "bn", have no weight decay."""
    groups = _groups(params, weight_decay)
    return AccumAdam(groups, lr, (beta1, beta2), eps, accum_iter=accum_iter)


def optim_fn_accum_adamw(
    params: Named,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.1,
    accum_iter: int = 4,
) -> Optimizer:
    """`AccumAdamW`. Biases, and what is called "bn", have no weight decay."""
    groups = _groups(params, weight_decay)
    return AccumAdamW(groups, lr, (beta1, beta2), eps, accum_iter=accum_iter)


def lr_scheduler_fn_cosine_with_warmup(
    optimizer: Optimizer,
    t_max: int,
    t_warmup: int,
    cosine_eta_min: float = 1e-6,
    warmup_decay: float = 0.01,
) -> SequentialLR:
    """Up from `warmup_decay` times the rate in `t_warmup` steps, then down by a cosine."""
    warmup = LinearLR(optimizer, start_factor=warmup_decay, total_iters=t_warmup)
    cosine = CosineAnnealingLR(optimizer, T_max=t_max, eta_min=cosine_eta_min)
    return SequentialLR(optimizer, [warmup, cosine], [t_warmup])


def _groups(params: Named, weight_decay: float) -> list[dict[str, Any]]:
    decaying: list[torch.Tensor] = []
    others: list[torch.Tensor] = []
    for name, param in params:
        (others if "bn" in name or "bias" in name else decaying).append(param)
    return [
        {"params": decaying, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
