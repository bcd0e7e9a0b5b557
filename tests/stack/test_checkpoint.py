"""Four ranks save by torch.distributed.checkpoint, and two go on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support import harness, stack

ROWS, BEFORE, AFTER = 8, 4, 4  # rows of a step's whole batch; steps until the save, and after it


@dataclass(frozen=True)
class Part:
    losses: list[float]
    operations: int


class Trainer:
    """A Trainer owns a net by FSDP2 and Adam; `seed` decides the parameters before any load."""

    def __init__(self, seed: int) -> None:
        net = stack.mlp(23)
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(seed)
        self.net = stack.fully_sharded(net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.steps = torch.zeros(1)

    def train(self, count: int) -> list[float]:
        losses = []
        for _ in range(count):
            self.optimizer.zero_grad()
            step, rank, world = int(self.steps), dist.get_rank(), dist.get_world_size()
            x, y = stack.batch(step, ROWS)
            x, y = x.chunk(world)[rank], y.chunk(world)[rank]
            loss = nn.functional.mse_loss(self.net(x), y)
            loss.backward()
            self.optimizer.step()
            self.steps += 1
            losses.append(loss.item())
        return losses

    def state(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.net, self.optimizer)
        return {"model": model, "optimizer": optimizer, "steps": self.steps}

    def load(self, path: Path) -> None:
        from torch.distributed.checkpoint import load
        from torch.distributed.checkpoint.state_dict import set_state_dict

        state = self.state()
        load(state, checkpoint_id=path)
        set_state_dict(
            self.net, self.optimizer,
            model_state_dict=state["model"], optim_state_dict=state["optimizer"],
        )  # fmt: skip


def save(rank: int, world: int, path: Path, how: str) -> Part:
    import torch.distributed.checkpoint as dcp

    before = stack.operations()
    trainer = Trainer(seed=1)
    losses = trainer.train(BEFORE)
    if how == "save":
        dcp.save(trainer.state(), checkpoint_id=path)
    else:
        # This saves in the background, over a group of its own: what was then, not what comes.
        with stack.group_of(dist.get_backend()) as group:
            saving = dcp.async_save(trainer.state(), checkpoint_id=path, process_group=group)
            trainer.train(AFTER)
            saving.result()
    dist.barrier()
    return Part(losses, stack.operations() - before)


def resume(rank: int, world: int, path: Path) -> Part:
    before = stack.operations()
    trainer = Trainer(seed=2)
    trainer.load(path)
    assert int(trainer.steps) == BEFORE
    return Part(trainer.train(AFTER), stack.operations() - before)


@pytest.fixture(scope="module")
def alone() -> Iterator[list[float]]:
    """Yield the losses of the whole run in one process that never stopped."""
    net, losses = stack.mlp(23), []
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(BEFORE + AFTER):
        optimizer.zero_grad()
        x, y = stack.batch(step, ROWS)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    yield losses


def over_ranks(parts: list[Part]) -> list[float]:
    assert all(part.operations > 0 for part in parts)
    return [sum(losses) / len(parts) for losses in zip(*(p.losses for p in parts), strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["save", "async_save"])
def test_four_save_and_two_go_on(
    pool: harness.Pool, tmp_path: Path, alone: list[float], how: str
) -> None:
    """Parameters and moments, resharded, continue the losses of one process that never stopped."""
    saved = over_ranks(pool.run(save, tmp_path / "at", how, world=4))
    assert (tmp_path / "at" / ".metadata").exists()
    resumed = over_ranks(pool.run(resume, tmp_path / "at", world=2))
    assert saved + resumed == pytest.approx(alone, rel=1e-5)


def full_state(rank: int, world: int, path: Path) -> list[float]:
    """Save a replicated and a per-rank value, by all ranks; each rank reads the others' later."""
    from torch.distributed.checkpoint import async_save

    state = {"shared": torch.arange(5.0), f"of{rank}": torch.full((3,), float(rank)), "name": "it"}
    # Nobody else uses the default group.
    future = async_save(state, checkpoint_id=path)
    future.result()
    dist.barrier()
    return []


def read_state(rank: int, world: int, path: Path) -> list[float]:
    from torch.distributed.checkpoint import load

    state: dict[str, Any] = {f"of{r}": torch.zeros(3) for r in range(4)}
    state |= {"shared": torch.zeros(5), "name": ""}
    load(state, checkpoint_id=path)
    assert state["name"] == "it"
    return [*state["shared"].tolist(), *(state[f"of{r}"].sum().item() for r in range(4))]


def test_values_of_each_rank_are_read_by_others(pool: harness.Pool, tmp_path: Path) -> None:
    """async_save works over the default group, for tensors that only one rank has."""
    pool.run(full_state, tmp_path / "at", world=4)
    want = [0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 3.0, 6.0, 9.0]
    assert pool.run(read_state, tmp_path / "at", world=2) == [want] * 2
