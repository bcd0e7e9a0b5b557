"""This module has Asyncddp's optimizers and schedulers, for `DecentralizedDataParallel`."""

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
    """Return Adam; biases, and parameters called "bn", have no weight decay.

    Args:
        params: (name, parameter) pairs.
        lr, beta1, beta2, weight_decay, eps: as in torch.optim.Adam.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> layer = torch.nn.Linear(2, 1)
        >>> optimizer = bf.optim.optim_fn_adam(layer.named_parameters(), weight_decay=0.1)
        >>> sorted((len(g["params"]), g["weight_decay"]) for g in optimizer.param_groups)
        [(1, 0.0), (1, 0.1)]
    """
    return Adam(_groups(params, weight_decay), lr=lr, betas=(beta1, beta2), eps=eps)


def optim_fn_adamw(
    params: Named,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    weight_decay: float = 0.1,
    eps: float = 1e-8,
) -> Optimizer:
    """Return AdamW; biases, and parameters called "bn", have no weight decay.

    Args:
        params: (name, parameter) pairs.
        lr, beta1, beta2, weight_decay, eps: as in torch.optim.AdamW.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> optimizer = bf.optim.optim_fn_adamw(torch.nn.Linear(2, 1).named_parameters())
        >>> sorted((len(g["params"]), g["weight_decay"]) for g in optimizer.param_groups)
        [(1, 0.0), (1, 0.1)]
    """
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
    """Return `AccumAdam`; biases, and parameters called "bn", have no weight decay.

    Args:
        params: (name, parameter) pairs.
        lr, beta1, beta2, eps, weight_decay, accum_iter: as in `bluefog_pg.optim.AccumAdam`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> layer = torch.nn.Linear(2, 1)
        >>> optimizer = bf.optim.optim_fn_accum_adam(layer.named_parameters(), accum_iter=8)
        >>> isinstance(optimizer, bf.optim.AccumAdam)
        True
    """
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
    """Return `AccumAdamW`; biases, and parameters called "bn", have no weight decay.

    Args:
        params: (name, parameter) pairs.
        lr, beta1, beta2, eps, weight_decay, accum_iter: as in `bluefog_pg.optim.AccumAdamW`.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> layer = torch.nn.Linear(2, 1)
        >>> optimizer = bf.optim.optim_fn_accum_adamw(layer.named_parameters(), accum_iter=8)
        >>> isinstance(optimizer, bf.optim.AccumAdamW)
        True
    """
    groups = _groups(params, weight_decay)
    return AccumAdamW(groups, lr, (beta1, beta2), eps, accum_iter=accum_iter)


def lr_scheduler_fn_cosine_with_warmup(
    optimizer: Optimizer,
    t_max: int,
    t_warmup: int,
    cosine_eta_min: float = 1e-6,
    warmup_decay: float = 0.01,
) -> SequentialLR:
    """Return a schedule: the rate rises in `t_warmup` steps, then it falls by a cosine.

    Args:
        optimizer: the optimizer whose rate changes.
        t_max: number of steps of the whole schedule.
        t_warmup: number of steps of the rise.
        cosine_eta_min: the rate at the end.
        warmup_decay: the rise begins with this part of the rate.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        >>> scheduler = bf.optim.lr_scheduler_fn_cosine_with_warmup(sgd, t_max=10, t_warmup=2)
        >>> round(sgd.param_groups[0]["lr"], 4)
        0.01
    """
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
