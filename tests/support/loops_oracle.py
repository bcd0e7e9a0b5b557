"""This oracle simulates all ranks of a training loop in one process."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.support.loops import (
    METHODS,
    RATE,
    Program,
    Step,
    differentiated,
    loss_of,
    model_of,
    optimizer_of,
    toggle,
    vector,
    written,
)

BETA = 0.9  # the momentum of QuasiGlobalMomentum


class Oracle:
    """An Oracle runs the loop on models of all ranks, by the methods' formulas.

    It owns the models and optimizers. A row of its matrices has all parameters of one rank.
    """

    def __init__(self, program: Program, world: int) -> None:
        self.program, self.world = program, world
        self.models = [model_of(rank) for rank in range(world)]
        self.optimizers = [optimizer_of(program, model) for model in self.models]
        self.name = program.method.split()[0]
        # A rank in a ring hears the ranks before and behind it. In the exponential graph, which
        # groups begin with, it hears the ranks that are a power of two before it. Otherwise it
        # hears everyone.
        hops = {"neighbor_allreduce": (1, -1), "push_sum": (1, 2)}
        near = torch.eye(world, dtype=torch.float64)
        for rank in range(world):
            for hop in hops.get(METHODS[program.method][0], range(world)):
                near[rank, (rank - hop) % world] = 1
        self.share = near / near.sum(1, keepdim=True)
        self.begin()

    def begin(self) -> None:
        zeros = torch.zeros_like(self.rows())
        self.memory = {name: zeros.clone() for name in ("first", "second", "outer")}
        self.passes = self.steps = 0
        self.has_anchors = False
        self.known = self.live()

    def rows(self) -> Tensor:
        return torch.stack([vector(model) for model in self.models])

    @torch.no_grad()
    def set(self, rows: Tensor, of_gradients: bool = False) -> None:
        for model, row in zip(self.models, rows, strict=True):
            for param, part in zip(model.parameters(), row.split(self.sizes()), strict=True):
                if of_gradients and param.requires_grad:
                    param.grad = part.view_as(param).clone()
                elif not of_gradients:
                    param.copy_(part.view_as(param))

    def sizes(self) -> list[int]:
        return [param.numel() for param in self.models[0].parameters()]

    def gradients(self) -> Tensor:
        return torch.stack(
            [
                torch.cat(
                    [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in ps]
                )
                for ps in (list(model.parameters()) for model in self.models)
            ]
        )

    def live(self) -> Tensor:
        flags = [p.requires_grad for p in self.models[0].parameters()]
        return torch.cat([torch.full((n,), f) for n, f in zip(self.sizes(), flags, strict=True)])

    def run(self) -> Tensor:
        for number, step in enumerate(self.program.steps):
            for model in self.models:
                toggle(step, model)
            if "remake" in step.happenings:
                self.begin()
            self.meet_new_parameters()
            if not self.program.is_handed_closures:
                self.differentiate(step, number)
            for model in self.models:
                if self.program.is_handed_closures or (
                    "closure" not in step.happenings or "write" in step.happenings
                ):
                    written(step, model)
            self.step(lambda number=number, step=step: self.update(step, number))
        return self.rows()

    def meet_new_parameters(self) -> None:
        """Take in the parameters that have been thawed since the optimizer was made."""
        new = self.live() & ~self.known
        self.memory["first"] = torch.where(
            new & (self.name == "LocalSteps"), self.rows(), self.memory["first"]
        )
        self.known |= new

    def differentiate(self, step: Step, number: int) -> None:
        """Make all ranks' passes, kind by kind, as gradients may be averaged in between."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        if self.name != "GradientAverage":
            for rank, model in enumerate(self.models):
                ended: list[int] = []
                differentiated(
                    self.program, step, model, rank, number, lambda ended=ended: ended.append(1)
                )
            self.passes += len(ended)
            return
        losses = [
            loss_of(model, self.program.seed, rank, number)
            for rank, model in enumerate(self.models)
        ]
        for turn in range(1 + ("twice" in step.happenings)):
            for loss in losses:
                loss.backward(retain_graph=turn == 0)
            self.passes += 1
            if self.passes == self.program.every:
                self.passes = 0
                self.set(self.gradients().mean(0).expand(self.world, -1), of_gradients=True)

    def update(self, step: Step, number: int) -> None:
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
            if self.program.is_handed_closures:
                optimizer.zero_grad()

                def closure(rank: int = rank, model: nn.Module = model) -> None:
                    differentiated(self.program, step, model, rank, number, lambda: None)

                optimizer.step(closure)
            else:
                optimizer.step()

    def is_due(self) -> bool:
        if self.program.every > 1 and self.passes < self.program.every:
            return False
        self.passes = 0
        return True

    def step(self, update: Callable[[], None]) -> None:
        getattr(self, f"step_{self.name}")(update)

    def averages(self, rows: Tensor) -> Tensor:
        return torch.where(self.known, self.share @ rows, rows)

    def step_awc(self, update: Callable[[], None]) -> None:
        before = self.rows()
        averages = self.averages(before) if self.is_due() else before
        if self.program.is_handed_closures:
            update()
            self.set(self.rows() + averages - before)
        else:
            self.set(averages)
            update()

    def step_atc(self, update: Callable[[], None]) -> None:
        update()
        if self.is_due():
            self.set(self.averages(self.rows()))

    def step_GradientAverage(self, update: Callable[[], None]) -> None:
        update()

    def step_ExactDiffusion(self, update: Callable[[], None]) -> None:
        before, live = self.rows(), self.live()
        update()
        psi, correction = self.rows(), self.memory["first"]
        corrected = psi + correction
        rows = (corrected + self.share @ corrected) / 2
        self.set(torch.where(live, rows, before))
        self.memory["first"] = torch.where(live, rows - psi, correction)

    def step_GradientTracking(self, update: Callable[[], None]) -> None:
        live, tracker, last = self.live(), self.memory["first"], self.memory["second"]
        gradients = self.gradients()
        self.set(torch.where(live, self.share @ self.rows(), self.rows()))
        self.memory["first"] = torch.where(live, self.share @ tracker + gradients - last, tracker)
        self.memory["second"] = torch.where(live, gradients, last)
        self.set(self.memory["first"], of_gradients=True)
        update()

    def step_QuasiGlobalMomentum(self, update: Callable[[], None]) -> None:
        live, move, before = self.live(), self.memory["first"], self.rows()
        self.set(self.gradients() + BETA * move, of_gradients=True)
        update()
        if self.is_due():
            self.set(torch.where(live, self.share @ self.rows(), before))
        moved = (before - self.rows()) / RATE
        self.memory["first"] = torch.where(live, BETA * move + (1 - BETA) * moved, move)

    def step_DecentLaM(self, update: Callable[[], None]) -> None:
        rows = self.rows()
        ends = self.share @ (rows - RATE * self.gradients())
        self.set((rows - ends) / RATE, of_gradients=True)
        update()

    def step_LocalSteps(self, update: Callable[[], None]) -> None:
        live = self.live()
        if not self.has_anchors:
            self.has_anchors = True
            self.memory["first"] = self.rows()
        update()
        self.steps += 1
        if self.steps % self.program.every:
            return
        rows, anchors, momentum = self.rows(), self.memory["first"], self.memory["outer"]
        mean = self.share @ rows
        means = self.share @ anchors
        momentum = torch.where(live, 0.5 * momentum + means - mean, momentum)
        anchors = torch.where(live, means - 0.7 * momentum, anchors)
        self.memory["outer"], self.memory["first"] = momentum, anchors
        self.set(torch.where(live, anchors, rows))
