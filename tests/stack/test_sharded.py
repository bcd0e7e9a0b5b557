"""Models cut into shards, columns or stages train on bluefog as the whole model does alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support import harness, stack

if TYPE_CHECKING:
    from torch.distributed.optim import ZeroRedundancyOptimizer

STEPS, ROWS = 10, 8


@dataclass(frozen=True)
class Trained:
    losses: list[float]  # this rank's losses
    whole: list[float]  # losses of the same model, whole, in one process
    distance: float  # the distance between the two at the end
    operations: int

    def check(self, losses: list[float] | None = None) -> None:
        losses = self.losses if losses is None else losses
        assert len(losses) == STEPS
        assert losses == pytest.approx(self.whole, rel=1e-5)
        assert self.distance < 1e-5
        assert self.whole[-1] < 0.8 * self.whole[0], "learned nothing"
        assert self.operations > 0


def whole(
    net: nn.Module, optimizer: torch.optim.Optimizer, batches: Callable[[int], Any]
) -> list[float]:
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = batches(step)
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def adam(parameters: Any) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=0.01)


# -- data parallel: every rank has its own rows, and the mean of the losses is the whole's ---------


def fsdp1(strategy: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    world = dist.get_world_size()
    shape = (2, world // 2) if strategy == "HYBRID_SHARD" else (world,)
    net = FullyShardedDataParallel(
        stack.mlp(), device_mesh=init_device_mesh("cpu", shape), device_id=torch.device("cpu"),
        sharding_strategy=ShardingStrategy[strategy], use_orig_params=True,
    )  # fmt: skip
    return net, adam(net.parameters())


def fsdp2() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = stack.fully_sharded(stack.mlp(23))  # Shards are uneven, and some ranks have fewer rows.
    return net, adam(net.parameters())


def zero() -> tuple[nn.Module, torch.optim.Optimizer]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = DistributedDataParallel(stack.mlp())
    return net, ZeroRedundancyOptimizer(
        net.parameters(), torch.optim.Adam, parameters_as_bucket_view=True, lr=0.01
    )


SHARDED: dict[str, Callable[[], tuple[nn.Module, torch.optim.Optimizer]]] = {
    "fsdp1": lambda: fsdp1("FULL_SHARD"),
    "fsdp1_hybrid": lambda: fsdp1("HYBRID_SHARD"),
    "fsdp2": fsdp2,
    "zero": zero,
}


def shard_and_train(rank: int, world: int, name: str) -> Trained:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer

    before = stack.operations()
    net, optimizer = SHARDED[name]()
    losses = whole(net, optimizer, lambda step: stack.share(step, rank, world, ROWS))
    reference = stack.mlp(23 if name == "fsdp2" else 24)
    one = adam(reference.parameters())
    want = whole(reference, one, lambda step: stack.batch(step, ROWS * world))
    if isinstance(net, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(net):
            gap = stack.distance(net.parameters(), reference.parameters())
    else:
        gap = stack.distance(net.parameters(), reference.parameters())
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        gap = max(gap, consolidated(optimizer, one))
    return Trained(losses, want, gap, stack.operations() - before)


def consolidated(optimizer: ZeroRedundancyOptimizer, one: torch.optim.Adam) -> float:
    """Return how far the state that rank 0 collects from all is from that of the one optimizer."""
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() != 0:
        return 0.0
    got, want = optimizer.state_dict()["state"], one.state_dict()["state"]
    assert got.keys() == want.keys()
    return stack.distance(
        [got[i][key] for i in want for key in ("exp_avg", "exp_avg_sq")],
        [want[i][key] for i in want for key in ("exp_avg", "exp_avg_sq")],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "name"),
    [(2, "fsdp1"), (2, "fsdp2"), (2, "zero"), *((4, name) for name in SHARDED)],
)
def test_shards_train_as_the_whole(pool: harness.Pool, world: int, name: str) -> None:
    """Parameters and the state of Adam are in shards; hybrid has two copies of two shards each."""
    got = pool.run(shard_and_train, name, world=world)
    for trained in got:
        trained.check(
            [sum(several) / world for several in zip(*(g.losses for g in got), strict=True)]
        )


# -- tensor parallel: every rank has all rows and part of each layer -------------------------------


class Block(nn.Module):
    """A Block is a transformer's layer with causal attention, whose heads the ranks share out."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.heads = heads  # the number of heads that this rank has
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.words, self.answer = nn.Embedding(20, 32), nn.Linear(32 * 8, stack.WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = self.words((3 * x + 10).long().clamp(0, 19))
        parts = [
            m(h).unflatten(-1, (self.heads, 8)).transpose(1, 2) for m in (self.q, self.k, self.v)
        ]
        seen = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        h = h + self.o(seen.transpose(1, 2).flatten(2))
        h = h + self.down(nn.functional.gelu(self.up(self.norm(h))))
        return self.answer(h.flatten(1))


def tensor_parallel(rank: int, world: int) -> Trained:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    before = stack.operations()
    mesh = init_device_mesh("cpu", (world,))
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    plan |= {
        "o": RowwiseParallel(),
        "down": RowwiseParallel(),
        "words": RowwiseParallel(input_layouts=Replicate()),
        "answer": ColwiseParallel(output_layouts=Replicate()),
    }
    net = parallelize_module(Block(4 // world), mesh, plan)
    reference = Block(4)

    def rows(step: int) -> tuple[Tensor, Tensor]:
        return stack.batch(step, 4 * ROWS)

    # Adam would blow up the rounding of gradients that should be 0, such as that of k's bias.
    losses = whole(net, torch.optim.SGD(net.parameters(), lr=0.1), rows)
    want = whole(reference, torch.optim.SGD(reference.parameters(), lr=0.1), rows)
    gap = stack.distance(net.parameters(), reference.parameters())
    assert net.get_parameter("o.weight").placements == (Shard(1),)
    return Trained(losses, want, gap, stack.operations() - before)


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_columns_and_rows_train_as_the_whole(pool: harness.Pool, world: int) -> None:
    """parallelize_module splits a transformer block, also its embedding and the gathered answer."""
    for trained in pool.run(tensor_parallel, world=world):
        trained.check()


# -- pipelines: every rank has a stage, the last one the losses ------------------------------------


def stages(count: int) -> list[nn.Module]:
    torch.manual_seed(11)
    wide = [nn.Sequential(nn.Linear(stack.WIDTH, 24), nn.Tanh())]
    wide += [nn.Sequential(nn.Linear(24, 24), nn.Tanh()) for _ in range(count - 2)]
    return [*wide, nn.Sequential(nn.Linear(24, stack.WIDTH))]


def pipeline(rank: int, world: int, schedule: str) -> Trained:
    from torch.distributed import pipelining

    before = stack.operations()
    many = 2 * world if schedule == "interleaved" else world
    mine = list(range(rank, many, world))  # the stages of this rank
    parts, reference = stages(many), nn.Sequential(*stages(many))
    made = [pipelining.PipelineStage(parts[i], i, many, torch.device("cpu")) for i in mine]
    loss_fn = nn.functional.mse_loss
    run: Any = {
        "gpipe": lambda: pipelining.ScheduleGPipe(made[0], 2 * world, loss_fn=loss_fn),
        "1f1b": lambda: pipelining.Schedule1F1B(made[0], 2 * world, loss_fn=loss_fn),
        "interleaved": lambda: pipelining.ScheduleInterleaved1F1B(made, 2 * world, loss_fn=loss_fn),
    }[schedule]()
    optimizer = adam([p for i in mine for p in parts[i].parameters()])
    losses: list[float] = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = stack.batch(step, 4 * ROWS)
        each: list[Tensor] = []
        last = {"target": y, "losses": each} if rank == world - 1 else {}
        run.step(*((x,) if rank == 0 else ()), **last)
        optimizer.step()
        losses += [torch.stack(each).mean().item()] if last else []
    want = whole(reference, adam(reference.parameters()), lambda step: stack.batch(step, 4 * ROWS))
    gap = max(stack.distance(parts[i].parameters(), reference[i].parameters()) for i in mine)
    return Trained(losses, want, gap, stack.operations() - before)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("world", [2, 4])
def test_stages_train_as_the_whole(pool: harness.Pool, world: int, schedule: str) -> None:
    """Activations go forth and gradients back, in micro-batches, also with two stages a rank."""
    got = pool.run(pipeline, schedule, world=world)
    for trained in got:
        trained.check(got[-1].losses)
