"""This module has Adam with moments that follow the mean gradient of several steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim.optimizer import ParamsT


class AccumAdam(Optimizer):
    """Make a step of Adam at each step, with moments of the mean of `accum_iter` steps' gradients.

    The moments are those of batches that are `accum_iter` times as large. Decentralized training
    wants such moments, since each rank sees its own batches only (Wang et al., ICLR 2025). The step
    itself is that of moments that have just taken in the last gradient. It needs no process group.

    Thread safety: as torch's optimizers, one thread at a time may use it. It owns two moments and a
    sum of gradients for each parameter, of the parameter's shape and dtype.

    Args:
        params: parameters or groups of them, as for torch's optimizers.
        lr, betas, eps: as in torch.optim.Adam.
        weight_decay: added to the gradient, times the parameter.
        accum_iter: steps for each change of the moments; the number of ranks is a good one.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = bf.optim.AccumAdam([w], lr=0.1, weight_decay=0.0, accum_iter=2)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> [round(number, 3) for number in w.tolist()]
        [0.9, 0.9]
    """

    _is_decoupled = False

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1.0 / 32768,
        accum_iter: int = 4,
    ) -> None:
        if accum_iter < 1:
            raise ValueError(
                f"{type(self).__name__}: accum_iter must be positive, not {accum_iter}"
            )
        options = {"lr": lr, "betas": betas, "eps": eps}
        super().__init__(
            params, {**options, "weight_decay": weight_decay, "accum_iter": accum_iter}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step.

        Args:
            closure: evaluates the model again and returns the loss, as in torch.optim.Adam.

        Returns:
            What the closure returns, or None.

        Example:
            >>> w = torch.nn.Parameter(torch.ones(1))
            >>> optimizer = bf.optim.AccumAdam([w], lr=0.1, weight_decay=0.0, accum_iter=2)
            >>> def closure():
            ...     optimizer.zero_grad()
            ...     loss = (w**2).sum()
            ...     loss.backward()
            ...     return loss
            >>> optimizer.step(closure).item(), round(w.item(), 3)
            (1.0, 0.9)
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._step(param, param.grad, group)
        return loss

    def _step(self, param: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[param]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.int64, device="cpu")
            for name in ("exp_avg", "exp_avg_sq", "accum_grad"):
                state[name] = torch.zeros_like(param)
        (beta1, beta2), decay, many = group["betas"], group["weight_decay"], group["accum_iter"]
        if self._is_decoupled:
            param.mul_(1 - group["lr"] * decay)
        else:
            grad = grad + decay * param
        state["step"] += 1
        state["accum_grad"].add_(grad, alpha=1 / many)
        # The stored moments have decayed already for the next mean gradient. This gradient stands
        # for that mean until it is complete.
        mean = state["exp_avg"].add(grad, alpha=1 - beta1)
        square = state["exp_avg_sq"].addcmul(grad, grad, value=1 - beta2)
        step = int(state["step"])
        changes = (step + many - 1) // many
        size = (square / (1 - beta2**changes)).sqrt_().add_(group["eps"])
        param.addcdiv_(mean, size, value=-group["lr"] / (1 - beta1**changes))
        if step % many == 0:
            taken = state["accum_grad"]
            state["exp_avg"].add_(taken, alpha=1 - beta1).mul_(beta1)
            state["exp_avg_sq"].addcmul_(taken, taken, value=1 - beta2).mul_(beta2)
            taken.zero_()


class AccumAdamW(AccumAdam):
    """Do what `AccumAdam` does, with decoupled weight decay as in torch.optim.AdamW.

    Thread safety: as torch's optimizers, one thread at a time may use it. It owns what `AccumAdam`
    owns.

    Args:
        params, lr, betas, eps, accum_iter: as in `AccumAdam`.
        weight_decay: each step multiplies the parameter by 1 - lr * weight_decay.

    Raises:
        ValueError: an argument is out of its range.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = bf.optim.AccumAdamW([w], lr=0.1, weight_decay=0.5, accum_iter=2)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> round(w.item(), 3)  # 0.95 is left of 1, and the step is 0.1.
        0.85
    """

    _is_decoupled = True

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        accum_iter: int = 4,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, accum_iter)
