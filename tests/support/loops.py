"""This module makes random training loops.

A loop does what programs do between forward, backward and step(): it freezes and thaws parameters,
makes extra passes, differentiates twice, writes to parameters, hands closures over, loads states
and begins anew in another group. `Program` says what happens in which step, alike on all ranks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

RATE = 0.05
STEPS = 10
# Each method has its communication, and the values of `every` that go with it.
METHODS: dict[str, tuple[str, tuple[int, ...]]] = {
    "awc": ("neighbor_allreduce", (1, 2, 3, 4)),
    "atc": ("neighbor_allreduce", (1, 2, 3, 4)),
    "awc allreduce": ("allreduce", (1, 3)),
    "atc push_sum": ("push_sum", (1, 2)),
    "GradientAverage": ("gradient_allreduce", (1, 2)),
    "ExactDiffusion": ("neighbor_allreduce", (1,)),
    "GradientTracking": ("neighbor_allreduce", (1,)),
    "QuasiGlobalMomentum": ("neighbor_allreduce", (1, 2)),
    "DecentLaM": ("neighbor_allreduce", (1,)),
    "LocalSteps": ("allreduce", (1, 2, 3, 4)),
}


@dataclass
class Step:
    """A Step says what happens in one step, beside a forward pass, a backward pass and step()."""

    # The parameters with these numbers are frozen or thawed before the step.
    toggled: list[int] = field(default_factory=list)
    happenings: set[str] = field(default_factory=set)


@dataclass
class Program:
    """A Program is a random loop, which its seed determines."""

    seed: int
    method: str
    every: int
    momentum: float
    is_handed_closures: bool
    steps: list[Step]

    @classmethod
    def of(cls, seed: int) -> Program:
        chance = random.Random(seed)
        method = chance.choice(list(METHODS))
        is_plain = method in ("awc", "atc", "awc allreduce")
        # The other methods form their own gradients, so no optimizer may differentiate in its
        # update.
        is_handed = is_plain and chance.random() < 0.2
        every = 1 if is_handed else chance.choice(METHODS[method][1])
        steps, frozen = [], set[int]()
        for _ in range(STEPS):
            toggled = [k for k in range(4) if chance.random() < 0.2]
            frozen ^= set(toggled)
            if len(frozen) == 4:
                frozen -= set(toggled[:1])
                toggled = toggled[1:]
            kinds = ["pass before", "pass after", "load", "remake"]
            kinds += [] if is_handed else ["twice", "closure"]
            kinds += ["write"] if is_plain or method in ("LocalSteps", "ExactDiffusion") else []
            kinds += ["sharpness"] if is_plain and not is_handed else []
            chances = {"remake": 0.05, "load": 0.1}
            drawn = {kind for kind in kinds if chance.random() < chances.get(kind, 0.2)}
            steps.append(Step(toggled, drawn))
        momentum = chance.choice([0.0, 0.5])
        if is_handed or method == "QuasiGlobalMomentum":
            momentum = 0.0
        return cls(seed, method, every, momentum, is_handed, steps)


class Handed(torch.optim.Optimizer):
    """Handed is SGD that calls its closure in the midst of its step, as sharpness-aware ones do."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": RATE})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> None:  # type: ignore[override]
        with torch.enable_grad():
            closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.sub_(param.grad, alpha=RATE)


def model_of(rank: int) -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.1 * rank)
    return model


def loss_of(model: nn.Module, seed: int, rank: int, number: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + 10 * number + rank)
    x = torch.randn(4, 3, generator=generator, dtype=torch.float64) + rank
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def optimizer_of(program: Program, model: nn.Module) -> Any:
    if program.is_handed_closures:
        return Handed(model.parameters())
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=program.momentum)


def outer(anchors: list[Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(anchors, lr=0.7, momentum=0.5)


def differentiated(
    program: Program, step: Step, model: nn.Module, rank: int, number: int, after: Callable[[], Any]
) -> None:
    """Make the step's passes, and call `after` whenever a backward pass has ended."""
    params = list(model.parameters())
    loss = loss_of(model, program.seed, rank, number)
    if "twice" in step.happenings:
        loss.backward(retain_graph=True)
        after()
    loss.backward()
    after()
    if "sharpness" in step.happenings:
        kept = [param.detach().clone() for param in params]
        with torch.no_grad():
            for param in params:
                param.add_(0.1)
                param.grad = None
        loss_of(model, program.seed, rank, number).backward()
        after()
        for param, saved in zip(params, kept, strict=True):
            param.data = saved


@torch.no_grad()
def written(step: Step, model: nn.Module) -> None:
    if "write" in step.happenings:
        for param in model.parameters():
            param.mul_(0.9)


def toggle(step: Step, model: nn.Module) -> None:
    for number, param in enumerate(model.parameters()):
        param.requires_grad_(param.requires_grad != (number in step.toggled))


class Loop:
    """A Loop runs the program on one rank, and owns the model and its distributed optimizer."""

    def __init__(self, program: Program, rank: int) -> None:
        self.program, self.rank = program, rank
        self.model = model_of(rank)
        self.group: Any = dist.group.WORLD
        self.optimizer = optimizer_of(program, self.model)
        self.wrap()

    def run(self) -> Tensor:
        for number, step in enumerate(self.program.steps):
            toggle(step, self.model)
            if "remake" in step.happenings:
                self.remake_group()
            if "load" in step.happenings:
                self.optimizer.load_state_dict(self.optimizer.state_dict())
            if "pass before" in step.happenings:
                self.pass_more(number)
            self.train(step, number)
        self.leave_group()
        return vector(self.model)

    def train(self, step: Step, number: int) -> None:
        closure = partial(self.differentiate, step, number)
        if self.program.is_handed_closures:
            self.pass_more(number)
            written(step, self.model)
            self.optimizer.step(closure)
        elif "closure" in step.happenings and "write" not in step.happenings:
            self.optimizer.step(closure)
        else:
            closure()
            if "pass after" in step.happenings:
                self.pass_more(number)
            written(step, self.model)
            self.optimizer.step()

    def differentiate(self, step: Step, number: int) -> None:
        self.optimizer.zero_grad()
        differentiated(self.program, step, self.model, self.rank, number, lambda: None)

    def pass_more(self, number: int) -> None:
        loss_of(self.model, self.program.seed, self.rank, number)

    def wrap(self) -> None:
        import bluefog_pg

        communication = METHODS[self.program.method][0]
        self.optimizer = bluefog_pg.DistributedOptimizer(
            self.optimizer,
            self.model,
            communication,
            order=order_of(self.program),
            every=self.program.every,
            topology="ring" if communication == "neighbor_allreduce" else None,
            bucket_bytes=100,
            group=self.group,
        )

    def remake_group(self) -> None:
        self.leave_group()
        self.group = dist.new_group(list(range(dist.get_world_size())))
        self.wrap()

    def leave_group(self) -> None:
        self.optimizer.close()
        if self.group is not dist.group.WORLD:
            dist.destroy_process_group(self.group)


def order_of(program: Program) -> Any:
    from bluefog_pg import optim

    name = program.method.split()[0]
    if name == "LocalSteps":
        return optim.LocalSteps(outer)
    own = getattr(optim, name, None)
    return name if own is None and name != "GradientAverage" else own() if own else "awc"


def vector(model: nn.Module) -> Tensor:
    return torch.cat([param.detach().flatten() for param in model.parameters()])
